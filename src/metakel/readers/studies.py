"""Columns of Optuna studies: every study a task, with the distributions of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metakel.errors import InputError
from metakel.readers.frames import Columns
from metakel.space import Categorical, Fixed, Float, Integer, Parameter, Space

TASK, OUTPUT = "study", "value"


@dataclass(frozen=True, eq=False)
class Studies:
    """Trials of all studies as columns, their joint space, and the direction they share."""

    columns: Columns
    space: Space
    minimize: bool
    failed: int


def read_studies(source: Any) -> Studies:
    """From a storage (its URL or object), one study, or a sequence of studies.

    Only completed trials have values; the others are counted as failed.
    """
    studies = _as_studies(source)
    minimize = _direction(studies)
    space = _joint_space(studies)
    columns: Columns = {name: [] for name in (TASK, *space.names, OUTPUT)}
    failed = 0
    for study in studies:
        for trial in study.get_trials(deepcopy=False):
            if trial.state.name != "COMPLETE" or trial.value is None:
                failed += 1
                continue
            columns[TASK].append(study.study_name)
            columns[OUTPUT].append(float(trial.value))
            for name in space.names:
                columns[name].append(trial.params.get(name))
    return Studies(columns, space, minimize, failed)


def _as_studies(source: Any) -> list[Any]:
    if hasattr(source, "get_trials"):
        return [source]
    if isinstance(source, Sequence) and not isinstance(source, str):
        studies = list(source)
    else:
        try:
            import optuna
        except ImportError:
            raise ImportError("Optuna storages need optuna: pip install metakel[optuna]") from None
        names = optuna.get_all_study_names(source)
        studies = [optuna.load_study(study_name=name, storage=source) for name in names]
    if not studies or not all(hasattr(study, "get_trials") for study in studies):
        raise InputError(f"found no Optuna studies in {source!r}; expected a storage or studies")
    return studies


def _direction(studies: Sequence[Any]) -> bool:
    for study in studies:
        if len(study.directions) > 1:
            raise InputError(
                f"study {study.study_name!r} has {len(study.directions)} objectives; expected one"
            )
    found = {study.direction.name for study in studies}
    if len(found) > 1:
        raise InputError("some studies minimise and others maximise; read them separately")
    return bool(found.pop() == "MINIMIZE")


def _joint_space(studies: Sequence[Any]) -> Space:
    """The parameters of all studies, with ranges wide enough for each."""
    known: dict[str, Parameter] = {}
    for study in studies:
        for trial in study.get_trials(deepcopy=False):
            for parameter in _trial_space(trial):
                name = parameter.name
                known[name] = _widen(known[name], parameter) if name in known else parameter
    if not known:
        raise InputError("the studies have no trials with parameters")
    return Space(tuple(known.values()))


def _trial_space(trial: Any) -> tuple[Parameter, ...]:
    varying = {name: d for name, d in trial.distributions.items() if not d.single()}
    fixed = tuple(
        Fixed(name, trial.params[name]) for name in trial.distributions if name not in varying
    )
    return (Space.from_optuna(varying).parameters if varying else ()) + fixed


def _widen(a: Parameter, b: Parameter) -> Parameter:
    if a == b:
        return a
    if isinstance(a, Categorical) and isinstance(b, Categorical):
        return Categorical(a.name, tuple(dict.fromkeys((*a.values, *b.values))))
    if isinstance(a, Float) and isinstance(b, Float) and type(a) is type(b) and a.log == b.log:
        low, high = min(a.low, b.low), max(a.high, b.high)
        whole = isinstance(a, Integer)
        step = a.step if a.step == b.step and a.low == b.low else (1 if whole else None)
        return type(a)(a.name, low, high, a.log, step)
    raise InputError(
        f"parameter {a.name!r} is {a.describe()} in one study and {b.describe()} in another; "
        "expected one type and scale"
    )
