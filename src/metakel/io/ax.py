"""Ax experiments: every experiment is a task, with its own search space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from metakel.errors import InputError
from metakel.io.merge import join_studies
from metakel.io.schema import Source
from metakel.space import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.text import is_numeric

TASK = "experiment"


def read_ax(source: Any, *, output: str | None, minimize: bool | None) -> Source:
    """Trials of Ax experiments: one or several of ``Client``, ``AxClient`` or ``Experiment``.

    Arms of completed trials have values; the others are counted as failed.
    """
    experiments = _as_experiments(source)
    goals = [_goal(experiment, output, minimize) for experiment in experiments]
    if len(set(goals)) > 1:
        shown = (
            f"{'minimise' if less else 'maximise'} {name}" for name, less in dict.fromkeys(goals)
        )
        raise InputError(f"the experiments have different objectives: {', '.join(shown)}")
    (metric, smaller), *_ = goals
    left_out: Counter[str] = Counter()
    studies = []
    for experiment in experiments:
        means, rows = _means(experiment, metric), []
        for trial in experiment.trials.values():
            if trial.status.name == "COMPLETED":
                rows += [(a.parameters, means.get((trial.index, a.name))) for a in trial.arms]
            else:
                left_out[trial.status.name.lower()] += len(trial.arms)
        studies.append((experiment.name, _parameters(experiment.search_space), rows))
    notes = [f"{n} trials are {status}" for status, n in left_out.items()]
    lacking = sum(value is None for _, _, rows in studies for _, value in rows)
    if lacking:
        notes.append(f"{lacking} completed trials have no {metric!r}")
    return join_studies(
        "Ax",
        studies,
        task=TASK,
        output=metric,
        minimize=smaller,
        failed=left_out.total(),
        notes=notes,
    )


def _as_experiments(source: Any) -> list[Any]:
    if isinstance(source, Mapping):
        source = source.values()
    several = isinstance(source, Iterable) and not isinstance(source, str)
    experiments = [_as_experiment(entry) for entry in (source if several else [source])]
    if not experiments:
        raise InputError("found no Ax experiments in an empty list")
    return experiments


def _as_experiment(entry: Any) -> Any:
    """A client holds its experiment; Ax's new client does so without a public name for it."""
    try:
        held = getattr(entry, "experiment", None), getattr(entry, "_experiment", None)
    except (AssertionError, ValueError):  # what a client says that was told nothing yet
        raise InputError(
            f"found a {type(entry).__name__} without an experiment; expected one with trials"
        ) from None
    for found in (entry, *held):
        if hasattr(found, "search_space") and hasattr(found, "lookup_data"):
            return found
    raise InputError(f"found a {type(entry).__name__}; expected an Ax Client or Experiment")


def _goal(experiment: Any, output: str | None, minimize: bool | None) -> tuple[str, bool]:
    """Metric and direction: as given, or those of the experiment's objective."""
    if output is not None and minimize is not None:
        return output, minimize
    config = experiment.optimization_config
    if config is None:
        raise InputError(
            f"experiment {experiment.name!r} has no objective; give output= and minimize="
        )
    objective = config.objective
    names = list(objective.metric_names)
    if output is None and len(names) != 1:
        raise InputError(
            f"experiment {experiment.name!r} has {len(names)} objectives ({', '.join(names)}); "
            "say which by output= and minimize="
        )
    if names != [output or names[0]] and minimize is None:
        raise InputError(
            f"{output!r} is not the objective of experiment {experiment.name!r} "
            f"({', '.join(names)}); say by minimize= whether smaller is better"
        )
    return output or names[0], bool(objective.minimize) if minimize is None else minimize


def _means(experiment: Any, metric: str) -> dict[tuple[int, str], float]:
    """Values by trial and arm, at the last step of those that report several."""
    rows = experiment.lookup_data().df
    if not len(rows):
        return {}
    names = ("trial_index", "arm_name", "metric_name", "mean")
    cells = zip(*(rows[name].tolist() for name in names), strict=True)
    found = {(int(index), arm): float(mean) for index, arm, name, mean in cells if name == metric}
    if not found:
        known = ", ".join(sorted(set(rows["metric_name"].tolist())))
        raise InputError(f"experiment {experiment.name!r} has no metric {metric!r}; found {known}")
    return found


def _parameters(search_space: Any) -> list[Parameter]:
    """The search space in our words; parameters derived from others carry nothing of their own."""
    entries = search_space.parameters.items()
    return [_parameter(n, p) for n, p in entries if type(p).__name__ != "DerivedParameter"]


def _parameter(name: str, entry: Any) -> Parameter:
    match type(entry).__name__:
        case "RangeParameter":
            kind = Integer if entry.parameter_type.name == "INT" else Float
            return kind(name, entry.lower, entry.upper, bool(entry.log_scale))
        case "ChoiceParameter":
            values = tuple(entry.values)
            numeric = all(map(is_numeric, values))
            return (Ordinal if entry.is_ordered and numeric else Categorical)(name, values)
        case "FixedParameter":
            return Fixed(name, entry.value)
        case unknown:
            raise InputError(f"parameter {name!r} is a {unknown}, which is not known here")
