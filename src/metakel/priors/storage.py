"""A prior as one JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import TINY, Array, as_number, as_numbers, single_blas_thread
from metakel._files import Content, Format, write_file
from metakel.errors import InputError
from metakel.gp.processes import LearnedProcess, LevelAndScale
from metakel.gp.success import SuccessChance
from metakel.kernels.nystrom import NystromFeatures
from metakel.optimize.model import BestRuns
from metakel.optimize.regret import RegretCalibration
from metakel.priors.calibration import Calibration
from metakel.priors.certified_start import PastOutputs
from metakel.priors.principal import EQUALLY, HeldOut
from metakel.priors.prior import Prior, PriorInfo
from metakel.space import Parameter, Space
from metakel.space.parameters import storable


def save_prior(prior: Prior, path: str | Path) -> None:
    """Write the file."""
    for parameter in prior.space.parameters:
        _check_storable(parameter)
    write_file(path, to_dict(prior))


def load_prior(path: str | Path) -> Prior:
    """Read it back."""
    with FORMAT.read_file(path) as content:
        return _from_content(content)


@single_blas_thread
def from_dict(data: Any) -> Prior:
    """Inverse of `to_dict`."""
    with FORMAT.load(data) as content:
        return _from_content(content)


def to_dict(prior: Prior) -> Content:
    """The prior as a document of plain lists and numbers."""
    calibration = prior.calibration
    # Calibration and prior share their features: stored once.
    basis = None if prior.task_gp is None else prior.task_gp.basis.to_dict()
    content: dict[str, Any] = {
        "space": prior.space.to_dict(),
        "model": asdict(prior.model),
        "basis": basis,
        "task_gp": None if prior.task_gp is None else _shape_to_dict(prior.task_gp),
        "heldout": _plain(prior.heldout, *(field.name for field in fields(prior.heldout))),
        "calibration": None
        if calibration is None
        else {
            "task_gp": _shape_to_dict(calibration.task_gp),
            "model": asdict(calibration.model),
            "norms": calibration.norms.tolist(),
        },
        "info": _info_to_dict(prior.info),
        "cold_weight": prior.cold_weight,
    }
    if prior.certificate is not None:
        content["certificate"] = prior.certificate.to_dict()
    if prior.past is not None:
        content["past"] = prior.past.to_dict()
    if prior.best_runs is not None:
        # Length scales and output are elsewhere in the file.
        content["best_runs"] = _plain(prior.best_runs, "X", "tasks", "values", "typical")
    if prior.success is not None:
        basis = prior.success.basis.to_dict()
        content["success"] = {"basis": basis, **_plain(prior.success, "intercept", "weights")}
    return FORMAT.dump(content)


def _plain(value: object, *names: str) -> Content:
    """Fields that hold arrays, tuples or numbers, as lists and numbers."""
    found = {name: getattr(value, name) for name in names}
    found = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in found.items()}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in found.items()}


def _from_content(data: Mapping[str, Any]) -> Prior:
    """Inverse of `to_dict`; refuses what `learn_prior` cannot have made."""
    space = Space.from_dict(data["space"])
    basis = None if data["basis"] is None else _basis_from_dict(data["basis"], space)
    found, info = data["calibration"], _info_from_dict(data["info"])
    calibration = None
    if found is not None and basis is not None:
        calibration = Calibration(
            _shape_from_dict(found["task_gp"], basis),
            _model_from_dict(found["model"]),
            as_numbers("norms", found["norms"], (None,)),
        )
    return Prior(
        space=space,
        model=_model_from_dict(data["model"]),
        task_gp=None if basis is None else _shape_from_dict(data["task_gp"], basis),
        heldout=_heldout_from_dict(
            data["heldout"], len(info.tasks) - len(info.constant) - len(info.set_aside)
        ),
        calibration=calibration,
        info=info,
        cold_weight=as_number("cold_weight", data["cold_weight"], 0, 1),
        certificate=RegretCalibration.from_dict(data["certificate"])
        if "certificate" in data
        else None,
        past=PastOutputs.from_dict(data["past"], space.d0) if "past" in data else None,
        best_runs=_best_runs_from_dict(data["best_runs"], space, basis.shared.lengthscales, info)
        if "best_runs" in data and basis is not None
        else None,
        success=_success_from_dict(data["success"], space) if "success" in data else None,
    )


def _success_from_dict(data: Mapping[str, Any], space: Space) -> SuccessChance:
    basis = _basis_from_dict(data["basis"], space)
    weights = as_numbers("weights", data["weights"], (basis.r,))
    return SuccessChance(basis, as_number("intercept", data["intercept"]), weights)


FORMAT = Format("metakel.Prior", version=2, noun="prior")


def _best_runs_from_dict(
    data: Mapping[str, Any], space: Space, lengthscales: Array, info: PriorInfo
) -> BestRuns:
    tasks = data["tasks"]
    if not isinstance(tasks, list) or not set(tasks) <= set(info.tasks):
        raise InputError(f"best runs are of {tasks!r}; expected a list of names of past tasks")
    X = as_numbers("X", data["X"], (len(tasks), space.d0))
    values, typical = (
        as_numbers(name, data[name], (len(tasks),)) for name in ("values", "typical")
    )
    points = tuple(space.decode(X))
    return BestRuns(points, X, tuple(tasks), values, typical, lengthscales, info.output)


def _info_to_dict(info: PriorInfo) -> Content:
    """Without limits of the output where there are none."""
    content = asdict(info)
    limits = content.pop("outputs")
    if limits is not None:
        content["outputs"] = [limit if isfinite(limit) else None for limit in limits]
    return content


def _info_from_dict(data: Mapping[str, Any]) -> PriorInfo:
    """Where a prior comes from; every field of its type."""
    found: dict[str, Any] = dict(data)
    for kind, names in (
        (list, ("tasks", "constant", "set_aside", "notes")),
        (str, ("output", "lam", "source")),
        (int, ("runs", "winsorized")),
        (bool, ("minimize", "mean")),
    ):
        for name in set(names) & set(found):  # some have a default
            value = found[name]
            if not isinstance(value, kind):
                raise InputError(f"{name} is {value!r}; expected {kind.__name__}")
            if isinstance(value, list):
                found[name] = tuple(map(str, value))
    if not re.fullmatch("([0-9a-f]{16})?", found.get("source", "")):
        raise InputError(f"source is {found['source']!r}; expected 16 hexadecimal digits")
    if "outputs" in found:
        low, high = found["outputs"]
        found["outputs"] = (
            -inf if low is None else as_number("outputs", low),
            inf if high is None else as_number("outputs", high),
        )
    return PriorInfo(**found)


def _model_from_dict(data: Mapping[str, Any]) -> LevelAndScale:
    lowest = {"level": -inf, "level_variance": 0.0, "scale": TINY, "spread": TINY}
    return LevelAndScale(**{name: as_number(name, data[name], low) for name, low in lowest.items()})


def _heldout_from_dict(data: Mapping[str, Any], varying: int) -> HeldOut:
    tasks = as_numbers("tasks", data["tasks"], (None,), low=0, below=varying)
    ratios = as_numbers("noise_ratio", data["noise_ratio"], (len(EQUALLY),), low=TINY)
    return HeldOut(
        tasks.astype(np.intp),
        as_numbers("log_scores", data["log_scores"], tasks.shape),
        as_numbers("cold_log_scores", data["cold_log_scores"], tasks.shape),
        as_number("lam_ratio", data["lam_ratio"], 0),
        as_number("residual_weight", data["residual_weight"], 0),
        tuple(ratios.tolist()),
    )


def _basis_from_dict(data: Mapping[str, Any], space: Space) -> NystromFeatures:
    shared = data["shared"]
    as_numbers("lengthscales", shared["lengthscales"], (space.d0,), low=TINY)
    for name in ("signal", "noise"):
        as_number(name, shared[name], TINY)
    as_numbers("landmarks", data["landmarks"], (None, space.d0))
    return NystromFeatures.from_dict(data)


def _shape_to_dict(shape: LearnedProcess) -> Content:
    directions = shape.directions.T.tolist()
    return {"directions": directions, **_plain(shape, "mu", "eta", "residual_weight")}


def _shape_from_dict(data: Mapping[str, Any], basis: NystromFeatures) -> LearnedProcess:
    eta = as_numbers("eta", data["eta"], (None,), low=0)
    directions = as_numbers(
        "directions", data["directions"] or np.empty((0, basis.r)), (len(eta), basis.r)
    )
    return LearnedProcess(
        basis,
        as_numbers("mu", data["mu"], (basis.r,)),
        np.ascontiguousarray(directions.T),
        eta,
        as_number("residual_weight", data["residual_weight"], 0),
    )


def _check_storable(parameter: Parameter) -> None:
    values = parameter.to_dict()
    odd = [v for v in values.get("values", (values.get("value"),)) if not storable(v)]
    if odd:
        raise InputError(
            f"parameter {parameter.name!r} has the value {odd[0]!r}, which a file cannot hold; "
            "expected numbers, text, true and false, or tuples of them"
        )
