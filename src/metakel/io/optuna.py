"""Optuna studies: every study is a task, with the distributions of its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.io.merge import join_studies
from metakel.io.schema import Source
from metakel.space import Parameter
from metakel.space.space import from_distribution

TASK, OUTPUT = "study", "value"


@dataclass(frozen=True, eq=False)
class RecordedStudy:
    """What can be learned from a study: values alone, without its storage.

    Parameters
    ----------
    study_name : str
    minimize : bool
    parameters : tuple of Parameter
        As its completed trials have them; several of one name where ranges changed.
    rows : tuple of (dict, float)
        Parameters and value of the completed trials; nan for those that failed.
    failed : int
        How many other trials there are.
    mark : tuple
        By what to know the study again: number and times of its first completed trial. A copy
        of the study has them, too, and no other study.
    constraints : tuple of dict
        Constraint values of the completed trials, by name.
    metric : str
        What the study calls its value, by ``study.set_metric_names``; empty where it has no name.
    pruned : int
        How many of the other trials were pruned.
    """

    study_name: str
    minimize: bool
    parameters: tuple[Parameter, ...]
    rows: tuple[tuple[Mapping[str, Any], float], ...]
    failed: int
    mark: tuple[Any, ...] = ()
    constraints: tuple[Mapping[str, float], ...] = ()
    metric: str = ""
    pruned: int = 0

    def is_of(self, study: Any) -> bool:
        """Whether this is the record of a study, however far that has come meanwhile."""
        if not self.mark or self.study_name != study.study_name:
            return False
        trials = study.get_trials(deepcopy=False)
        number = int(self.mark[0])
        return number < len(trials) and _mark(trials[number]) == self.mark


def read_optuna(source: Any) -> Source:
    """Trials of Optuna studies: a storage (its URL or object), one study, or several.

    Only completed trials have values; the others are counted as failed. Those that failed say where
    runs fail.
    """
    studies = recorded_studies(source)
    if not studies:
        raise InputError(f"found no Optuna studies in {source!r}; expected a storage or studies")
    if len({study.minimize for study in studies}) > 1:
        down, up = ([s.study_name for s in studies if s.minimize is m] for m in (True, False))
        raise InputError(
            f"some studies minimise and others maximise ({', '.join(down[:3])} against "
            f"{', '.join(up[:3])}); read them separately"
        )
    metrics = {study.metric for study in studies} - {""}
    return join_studies(
        "Optuna",
        [(study.study_name, study.parameters, study.rows) for study in studies],
        task=TASK,
        output=metrics.pop() if len(metrics) == 1 else OUTPUT,
        minimize=studies[0].minimize,
        failed=sum(study.failed for study in studies),
        notes=_left_out(studies),
    )


def _left_out(studies: Sequence[RecordedStudy]) -> tuple[str, ...]:
    """How the trials without a value ended."""
    failed = sum(isnan(value) for study in studies for _, value in study.rows)
    pruned = sum(study.pruned for study in studies)
    open_ones = sum(study.failed - study.pruned for study in studies)
    ends = {"were pruned": pruned, "failed": failed, "have no value or are open": open_ones}
    counted = [f"{count} {how}" for how, count in ends.items() if count]
    return (f"of the trials without a value, {', '.join(counted)}",) if pruned else ()


def recorded_studies(source: Any) -> list[RecordedStudy]:
    """The studies of a storage, one study, or several; none where there are none."""
    return [_record(study) for study in _as_studies(source)]


def _as_studies(source: Any) -> list[Any]:
    if hasattr(source, "get_trials"):
        return [source]
    if isinstance(source, Mapping):
        source = source.values()
    if isinstance(source, Iterable) and not isinstance(source, str):
        studies = list(source)
        for study in studies:
            if not isinstance(study, RecordedStudy) and not hasattr(study, "get_trials"):
                raise InputError(
                    f"found a {type(study).__name__} among the studies ({study!r:.60}); expected "
                    "Optuna studies, as optuna.load_study gives them"
                )
        return studies
    try:
        import optuna
    except ImportError:
        raise ImportError("Optuna storages need optuna: pip install metakel[optuna]") from None
    if isinstance(source, (str, Path)):
        _check_url(str(source))
    elif not isinstance(source, optuna.storages.BaseStorage):
        raise InputError(
            f"found no Optuna studies in {source!r}; expected a storage, its URL, or studies"
        )
    names = optuna.get_all_study_names(source)
    return [optuna.load_study(study_name=name, storage=source) for name in names]


def _check_url(url: str) -> None:
    """What is no URL at all, and a file that SQLite would make because it is not there."""
    scheme, colon, path = url.partition("://")
    two_slashes = scheme.startswith("sqlite") and path and not path.startswith("/")
    if not colon or two_slashes:
        raise InputError(
            f"{url!r} is no URL of a storage; a file of SQLite is given as "
            f"'sqlite:///{path or url}'"
        )
    file = path[1:].partition("?")[0]
    in_memory = file in ("", ":memory:") or file.startswith("file:")
    if scheme.startswith("sqlite") and not in_memory and not Path(file).exists():
        raise InputError(f"there is no file {file} (asked for by {url})")


def _record(study: Any) -> RecordedStudy:
    if isinstance(study, RecordedStudy):
        return study
    if len(study.directions) > 1:
        raise InputError(
            f"study {study.study_name!r} has {len(study.directions)} objectives; expected one"
        )
    trials = study.get_trials(deepcopy=False)
    done = [t for t in trials if t.state.name == "COMPLETE" and t.value is not None]
    failed = [t for t in trials if t.state.name == "FAIL" and t.params]
    parameters = dict.fromkeys(
        from_distribution(name, d) for trial in done for name, d in trial.distributions.items()
    )
    return RecordedStudy(
        study.study_name,
        study.direction.name == "MINIMIZE",
        tuple(parameters),
        (
            *((dict(trial.params), float(trial.value)) for trial in done),
            *((dict(trial.params), nan) for trial in failed),
        ),
        len(trials) - len(done) - len(failed),
        _mark(done[0]) if done else (),
        tuple(dict(getattr(trial, "constraints", {})) for trial in done),
        next(iter(getattr(study, "metric_names", None) or ()), ""),
        sum(trial.state.name == "PRUNED" for trial in trials),
    )


def _mark(trial: Any) -> tuple[Any, ...]:
    return trial.number, trial.datetime_start, trial.datetime_complete
