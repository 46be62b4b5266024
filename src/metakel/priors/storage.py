"""A prior as one versioned JSON file; every number is read back bit by bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from metakel._json import DAMAGE, check_format
from metakel.errors import InputError
from metakel.gp.task_gp import TaskGP
from metakel.gp.task_scale import TaskModel
from metakel.kernels.nystrom import NystromFeatures
from metakel.priors.calibration import Calibration
from metakel.priors.checked import TINY, number, numbers, read_facts
from metakel.priors.heldout import EQUALLY, HeldOut
from metakel.priors.prior import Prior
from metakel.space import Parameter, Space
from metakel.space.parameters import storable

FORMAT, VERSION = "metakel.Prior", 1


def save_prior(prior: Prior, path: str | Path) -> None:
    """Write the file."""
    for parameter in prior.space.parameters:
        _check_storable(parameter)
    Path(path).write_text(json.dumps(to_dict(prior), allow_nan=False), encoding="utf-8")


def load_prior(path: str | Path) -> Prior:
    """Read it back."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except ValueError as error:  # no JSON, or not even text
        raise InputError(f"{path} is not a saved prior: {error}") from None
    check_format(data, str(path), FORMAT, VERSION)
    try:
        return from_dict(data)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except DAMAGE as error:
        raise InputError(f"{path} is damaged: {error!r}") from None


def to_dict(prior: Prior) -> dict[str, Any]:
    """Plain lists and numbers."""
    held, calibration = prior.heldout, prior.calibration
    # Calibration and prior share their features: stored once.
    basis = None if prior.shape is None else prior.shape.basis.to_dict()
    return {
        "format": FORMAT,
        "version": VERSION,
        "space": prior.space.to_dict(),
        "model": asdict(prior.model),
        "basis": basis,
        "shape": None if prior.shape is None else _shape_to_dict(prior.shape),
        "heldout": {
            "tasks": held.tasks.tolist(),
            "gains": held.gains.tolist(),
            "cold": held.cold.tolist(),
            "share": held.share,
            "floor": held.floor,
            "noisiness": list(held.noise_ratio),
        },
        "calibration": None
        if calibration is None
        else {
            "shape": _shape_to_dict(calibration.shape),
            "model": asdict(calibration.model),
            "norms": calibration.norms.tolist(),
        },
        "facts": asdict(prior.info),
        "guard": prior.cold_weight,
    }


def from_dict(data: Mapping[str, Any]) -> Prior:
    """Inverse of `to_dict`; refuses what `learn_prior` cannot have made."""
    space = Space.from_dict(data["space"])
    basis = None if data["basis"] is None else _basis_from_dict(data["basis"], space)
    found, info = data["calibration"], read_facts(data["facts"])
    calibration = None
    if found is not None and basis is not None:
        calibration = Calibration(
            _shape_from_dict(found["shape"], basis),
            _model_from_dict(found["model"]),
            numbers("norms", found["norms"], (None,)),
        )
    return Prior(
        space=space,
        model=_model_from_dict(data["model"]),
        shape=None if basis is None else _shape_from_dict(data["shape"], basis),
        heldout=_heldout_from_dict(data["heldout"], len(info.tasks) - len(info.constant)),
        calibration=calibration,
        info=info,
        cold_weight=number("guard", data["guard"], 0, 1),
    )


def _model_from_dict(data: Mapping[str, Any]) -> TaskModel:
    lowest = {"level": -inf, "level_variance": 0.0, "scale": TINY, "spread": TINY}
    return TaskModel(**{name: number(name, data[name], low) for name, low in lowest.items()})


def _heldout_from_dict(data: Mapping[str, Any], varying: int) -> HeldOut:
    tasks = numbers("tasks", data["tasks"], (None,), 0, varying)
    return HeldOut(
        tasks.astype(np.intp),
        numbers("gains", data["gains"], tasks.shape),
        numbers("cold", data["cold"], tasks.shape),
        number("share", data["share"], 0),
        number("floor", data["floor"], 0),
        # not in the first files of this version
        tuple(numbers("noisiness", data.get("noisiness", EQUALLY), (len(EQUALLY),), TINY).tolist()),
    )


def _basis_from_dict(data: Mapping[str, Any], space: Space) -> NystromFeatures:
    shared = data["shared"]
    numbers("lengthscales", shared["lengthscales"], (space.d0,), TINY)
    for name in ("signal", "noise"):
        number(name, shared[name], TINY)
    numbers("landmarks", data["landmarks"], (None, space.d0))
    return NystromFeatures.from_dict(data)


def _shape_to_dict(shape: TaskGP) -> dict[str, Any]:
    return {
        "mu": shape.mu.tolist(),
        "directions": shape.directions.T.tolist(),
        "eta": shape.eta.tolist(),
        "floor": shape.floor,
    }


def _shape_from_dict(data: Mapping[str, Any], basis: NystromFeatures) -> TaskGP:
    eta = numbers("eta", data["eta"], (None,), 0)
    directions = numbers(
        "directions", data["directions"] or np.empty((0, basis.r)), (len(eta), basis.r)
    )
    return TaskGP(
        basis,
        numbers("mu", data["mu"], (basis.r,)),
        np.ascontiguousarray(directions.T),
        eta,
        number("floor", data["floor"], 0),
    )


def _check_storable(parameter: Parameter) -> None:
    values = parameter.to_dict()
    odd = [v for v in values.get("values", (values.get("value"),)) if not storable(v)]
    if odd:
        raise InputError(
            f"parameter {parameter.name!r} has the value {odd[0]!r}, which a file cannot hold; "
            "expected numbers, text, true and false, or tuples of them"
        )
