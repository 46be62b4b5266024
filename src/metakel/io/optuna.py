"""Optuna studies: every study is a task, with the distributions of its parameters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import isclose, isnan, nan
from pathlib import Path
from typing import Any

from metakel.curves import Curve, from_one
from metakel.errors import InputError, MetaKelError, first_of
from metakel.io.columns import Column, numbered
from metakel.io.schema import Table
from metakel.io.stopped import NOISE, TaskCurves, expected_ends
from metakel.space import Float, Parameter
from metakel.space.configurations import is_numeric
from metakel.space.infer import merge_spaces
from metakel.space.parameters import from_distribution

TASK, OUTPUT = "study", "value"
# The value of a parameter that a run does not have; None may be one of its choices.
ABSENT = float("nan")


@dataclass(frozen=True, eq=False)
class RecordedStudy:
    """What can be learned from a study: values alone, without its storage."""

    study_name: str
    minimize: bool
    # As its completed trials have them; several of one name where ranges changed.
    parameters: tuple[Parameter, ...]
    # Parameters and value of the completed trials; nan for those that failed.
    rows: tuple[tuple[Mapping[str, Any], float], ...]
    failed: int  # how many other trials there are
    # Number and times of its first completed trial: a copy of the study has them, and no other.
    mark: tuple[Any, ...] = ()
    constraints: tuple[Mapping[str, float], ...] = ()  # of the completed trials, by name
    metric: str = ""  # what it calls its value (`study.set_metric_names`)
    pruned: int = 0  # how many of the other trials were pruned
    # Of completed and pruned trials: the parameters of a pruned one, and values by step, from 1.
    curves: tuple[tuple[Mapping[str, Any] | None, Curve], ...] = ()

    def is_of(self, study: Any) -> bool:
        """Whether this is the record of a study, however far that has come meanwhile."""
        if not self.mark or self.study_name != study.study_name:
            return False
        trials = study.get_trials(deepcopy=False)
        number = int(self.mark[0])
        return number < len(trials) and _mark(trials[number]) == self.mark


def read_optuna(source: Any) -> Table:
    """Trials of Optuna studies: a storage (its URL or object), one study, or several.

    Completed trials have values. Pruned ones count by the end that the curves of completed ones
    let expect, and by how far that may be off, and are left out where those are too few. The others
    are counted as failed. Those that failed say where runs fail.
    """
    studies, skipped = recorded_studies(source)
    if not studies:
        why = "".join(f"; {text}" for text in skipped)
        raise InputError(
            f"found no Optuna studies in {source!r}; expected a storage or studies{why}"
        )
    minimize, labels = studies[0].minimize, numbered([study.study_name for study in studies])
    tasks = [
        TaskCurves.of(
            (curve for params, curve in study.curves if params is None),
            (curve for params, curve in study.curves if params is not None),
            (value for _, value in study.rows),
            minimize,
        )
        for study in studies
    ]
    runs = list[tuple[str, Mapping[str, Any], float, float]]()
    found = zip(labels, studies, expected_ends(tasks, minimize=minimize), strict=True)
    for label, study, ends in found:
        pruned = [params for params, _ in study.curves if params is not None]
        runs += [(label, *run) for run in ends.of_runs(study.rows, pruned)]
    taken = len(runs) - sum(len(study.rows) for study in studies)
    own = [(label, p) for label, s in zip(labels, studies, strict=True) for p in s.parameters]
    space, notes, conflicts = merge_spaces(own)
    names, metrics = dict.fromkeys(p.name for _, p in own), {s.metric for s in studies} - {""}
    output = metrics.pop() if len(metrics) == 1 else OUTPUT
    label_of, output = (f"optuna.{name}" if name in names else name for name in (TASK, output))
    columns = {label_of: Column.of([label for label, *_ in runs])}
    for name in names:
        if name in space.names or name in conflicts:
            columns[name] = Column.of([params.get(name, ABSENT) for _, params, *_ in runs])
    columns[output] = Column.of([value for _, _, value, _ in runs])
    noisy = any(noise_std == noise_std for *_, noise_std in runs)
    if noisy:
        columns[NOISE] = Column.of([noise_std for *_, noise_std in runs])
    return Table(
        "Optuna", columns, label_of, output, space, minimize,
        failed=sum(study.failed for study in studies) - taken,
        notes=(*notes, *skipped, *_left_out(studies, taken)),
        conflicts=conflicts,
        noise=NOISE if noisy else None,
        curves={
            study.study_name: task.whole
            for study, task in zip(studies, tasks, strict=True)
            if study.curves
        },
    )  # fmt: skip


def _left_out(studies: Sequence[RecordedStudy], known: int) -> tuple[str, ...]:
    """How the trials without a value ended."""
    failed = sum(isnan(value) for study in studies for _, value in study.rows)
    pruned = sum(study.pruned for study in studies) - known
    open_ones = sum(study.failed - study.pruned for study in studies)
    taken = f"{known} pruned trials count by the ends that curves of the others let expect"
    ends = {"were pruned": pruned, "failed": failed, "have no value or are open": open_ones}
    counted = [f"{count} {how}" for how, count in ends.items() if count]
    left = f"of the trials without a value, {', '.join(counted)}"
    return (*((taken,) if known else ()), *((left,) if pruned else ()))


@dataclass(frozen=True)
class Studies:
    """Some studies of an Optuna storage, wherever studies are taken.

    Parameters
    ----------
    storage : storage, its URL, or studies
    names : sequence of str, optional
        Names of the studies, also with ``*`` for any characters; by default all.
    where : callable, optional
        Takes a study and says whether to learn from it.
    rename : dict, optional
        New names of parameters by the old ones, where studies call one differently.
    """

    storage: Any
    names: Sequence[str] | None = None
    where: Callable[[Any], bool] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> list[Any]:
        """The studies with these names."""
        found = _as_studies(self.storage)
        known = [study.study_name for study in found]
        if isinstance(self.names, str):
            raise InputError(f"names is the text {self.names!r}; expected names in a list")
        for name in self.names or ():
            if not any(fnmatchcase(study, name) for study in known):
                raise InputError(f"no study {name!r}; found {', '.join(known[:10])}")
        if self.names is None:
            return found
        return [s for s in found if any(fnmatchcase(s.study_name, name) for name in self.names)]

    def wants(self, study: Any) -> bool:
        """Whether to learn from a study; an error of ``where`` is about this one."""
        try:
            return self.where is None or bool(self.where(study))
        except Exception as error:  # whatever a function of the user's own raises
            raise InputError(f"where raised {error!r}") from error


def recorded_studies(source: Any) -> tuple[list[RecordedStudy], list[str]]:
    """The studies of a storage, one study, or several, and why others do not fit.

    The direction, and whether a parameter is a number, are those of most studies.
    """
    chosen = source if isinstance(source, Studies) else Studies(source)
    if not isinstance(chosen.rename, Mapping):
        raise InputError(f"rename is {chosen.rename!r}; expected a dict of new names by old ones")
    records, skipped, names, read = list[RecordedStudy](), list[str](), set[str](), False
    for study in chosen.load():
        try:
            if chosen.wants(study):
                with _storage_errors("it"):
                    record = _record(study)
                read, names = True, names | {p.name for p in record.parameters}
                records.append(_renamed(record, chosen.rename))
        except InputError as error:
            skipped.append(f"study {study.study_name!r} is left out: {error.message}")
    for old in chosen.rename if read else ():
        if old not in names:
            raise InputError(
                f"rename has {old!r}, which no study has; found {first_of(sorted(names))}"
            )
    fitting = [record for record in records if record.rows and record.parameters]
    down = sum(2 * record.minimize - 1 for record in fitting)
    if fitting and down == 0:
        down_, up = ([s.study_name for s in fitting if s.minimize is m] for m in (True, False))
        raise InputError(
            f"some studies minimise and others maximise, as many of each ({', '.join(down_[:3])} "
            f"against {', '.join(up[:3])}); read them separately"
        )
    kinds = Counter((p.name, _is_number(p)) for r in fitting for p in set(r.parameters))
    common = Counter(name for r in fitting for name in {p.name for p in r.parameters})
    usual = {name for name, count in common.items() if 2 * count >= len(fitting)}
    kept = []
    for record in records:
        why = _misfit(record, down > 0, kinds, usual) if record in fitting else ""
        if why:
            skipped.append(f"study {record.study_name!r} is left out: {why}")
        else:
            kept.append(record)
    return kept, skipped


def _misfit(
    record: RecordedStudy,
    minimize: bool,
    kinds: Mapping[tuple[str, bool], int],
    usual: Collection[str],
) -> str:
    """Why a study cannot be learned from together with the others; empty if it can."""
    if record.minimize != minimize:
        return f"it {'minimises' if record.minimize else 'maximises'}, and most others do not"
    names = {p.name for p in record.parameters}
    if usual and not names & set(usual):
        return f"it has {', '.join(sorted(names))} and none of {', '.join(sorted(usual))}"
    for p in record.parameters:
        number = _is_number(p)
        if kinds[p.name, number] < kinds.get((p.name, not number), 0):
            most = "choices" if number else "numbers"
            return f"{p.name!r} is {p.describe()}, and most others have {most}"
    return ""


def _is_number(parameter: Parameter) -> bool:
    """Whether it is a number, or has one as its only value."""
    return isinstance(parameter, Float) or is_numeric(getattr(parameter, "value", None))


def _renamed(record: RecordedStudy, names: Mapping[str, str]) -> RecordedStudy:
    if not any(p.name in names for p in record.parameters):
        return record
    if both := [n for n in names if {n, names[n]} <= {p.name for p in record.parameters}]:
        raise InputError(f"it has both {both[0]!r} and {names[both[0]]!r}, which is its new name")

    def new(params: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in params.items()}

    return replace(
        record,
        parameters=tuple(
            replace(p, name=names.get(p.name, p.name))  # type: ignore[type-var]
            for p in record.parameters
        ),
        rows=tuple((new(params), value) for params, value in record.rows),
        curves=tuple((params and new(params), curve) for params, curve in record.curves),
    )


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
                    "Optuna studies, as optuna.load_study gives them, or names beside their "
                    "storage: metakel.integrations.optuna.Studies(storage, names=[...])"
                )
        return studies
    try:
        import optuna
    except ImportError:
        raise ImportError("Optuna storages need optuna: pip install 'optuna>=5'") from None
    if isinstance(source, (str, Path)):
        source = str(source)
        _check_url(source)
    elif not isinstance(source, optuna.storages.BaseStorage):
        raise InputError(
            f"found no Optuna studies in {source!r}; expected a storage, its URL, or studies"
        )
    with _storage_errors(str(source)):
        storage = optuna.storages.get_storage(source)  # once: a URL would be a connection each
        names = optuna.get_all_study_names(storage)
        return [optuna.load_study(study_name=name, storage=storage) for name in names]


@contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    """A damaged storage raises whatever its database or its values do."""
    try:
        yield
    except MetaKelError:
        raise
    except ImportError as error:
        lacking = error.__cause__ or error
        raise InputError(f"{what} needs a package that is not installed: {lacking}") from error
    except Exception as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{what} cannot be read, or is damaged: {said}") from error


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
    if scheme.startswith("sqlite") and not in_memory and not os.path.exists(file):
        raise InputError(f"there is no file {file} (asked for by {url})")


def _record(study: Any) -> RecordedStudy:
    if isinstance(study, RecordedStudy):
        return study
    if len(study.directions) != 1:
        raise InputError(f"it has {len(study.directions)} objectives; expected one")
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
        tuple(_curves(trials, study.direction.name == "MINIMIZE", parameters)),
    )


def _curves(
    trials: Iterable[Any], minimize: bool, known: Collection[Parameter]
) -> Iterator[tuple[Mapping[str, Any] | None, Curve]]:
    """Of completed trials whose value is the last or the best of its curve, and of pruned ones."""
    for trial in trials:
        state, curve = trial.state.name, from_one(trial.intermediate_values)
        if state == "PRUNED" and curve and trial.params:
            own = (from_distribution(name, d) for name, d in trial.distributions.items())
            if all(parameter in known for parameter in own):
                yield dict(trial.params), curve
        elif state == "COMPLETE" and curve and trial.value is not None:
            last, value = max(curve), float(trial.value)
            best = min(curve.values()) if minimize else max(curve.values())
            if any(isclose(value, of, rel_tol=1e-6) for of in (curve[last], best)):
                yield None, {**curve, last: value}


def _mark(trial: Any) -> tuple[Any, ...]:
    return trial.number, trial.datetime_start, trial.datetime_complete
