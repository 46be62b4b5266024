"""Columns of Optuna studies: every study a task, with the distributions of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.readers.frames import Columns
from metakel.readers.joint import distinct, joint_space
from metakel.readers.source import Source
from metakel.space import Fixed, Parameter, Space

TASK, OUTPUT = "study", "value"


def read_studies(source: Any) -> Source:
    """From a storage (its URL or object), one study, or a sequence of studies.

    Only completed trials have values; the others are counted as failed.
    """
    studies = _as_studies(source)
    minimize = _direction(studies)
    space = _joint_space(studies)
    # A parameter may have our name for the task or the output.
    task, output = (f"optuna.{name}" if name in space.names else name for name in (TASK, OUTPUT))
    columns: Columns = {name: [] for name in (task, *space.names, output)}
    failed = 0
    labels = distinct([study.study_name for study in studies])
    for label, study in zip(labels, studies, strict=True):
        for trial in study.get_trials(deepcopy=False):
            if trial.state.name != "COMPLETE" or trial.value is None:
                failed += 1
                continue
            columns[task].append(label)
            columns[output].append(float(trial.value))
            for name in space.names:
                columns[name].append(trial.params.get(name))
    return Source("Optuna", columns, task, output, space, minimize, failed)


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
        _refuse_no_file(source)
        names = optuna.get_all_study_names(source)
        studies = [optuna.load_study(study_name=name, storage=source) for name in names]
    if not studies or not all(hasattr(study, "get_trials") for study in studies):
        raise InputError(f"found no Optuna studies in {source!r}; expected a storage or studies")
    return studies


def _refuse_no_file(storage: Any) -> None:
    """SQLite would make the file that is not there."""
    scheme, _, path = str(storage).partition(":///")
    file = path.partition("?")[0]
    in_memory = file in ("", ":memory:") or file.startswith("file:")
    if scheme.startswith("sqlite") and not in_memory and not Path(file).exists():
        raise InputError(f"there is no file {file} (asked for by {storage})")


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
    trials = (trial for study in studies for trial in study.get_trials(deepcopy=False))
    return joint_space(parameter for trial in trials for parameter in _trial_space(trial))


def _trial_space(trial: Any) -> tuple[Parameter, ...]:
    varying = {name: d for name, d in trial.distributions.items() if not d.single()}
    fixed = tuple(
        Fixed(name, trial.params[name]) for name in trial.distributions if name not in varying
    )
    return (Space.from_optuna(varying).parameters if varying else ()) + fixed
