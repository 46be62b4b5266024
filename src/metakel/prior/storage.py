"""A prior as one versioned JSON file; every number is read back bit by bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from metakel.errors import InputError
from metakel.prior.basis import Basis
from metakel.prior.calibration import Calibration
from metakel.prior.heldout import EQUALLY, HeldOut
from metakel.prior.prior import Facts, Prior
from metakel.prior.shape import LearnedShape
from metakel.prior.task_model import TaskModel
from metakel.space import Space

FORMAT, VERSION = "metakel.Prior", 1


def save_prior(prior: Prior, path: str | Path) -> None:
    """Write the file."""
    Path(path).write_text(json.dumps(to_dict(prior), allow_nan=False), encoding="utf-8")


def load_prior(path: str | Path) -> Prior:
    """Read it back."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not a saved prior: {error}") from None
    found = (data.get("format"), data.get("version")) if isinstance(data, dict) else None
    if found != (FORMAT, VERSION):
        raise InputError(f"{path} holds {found}; expected ({FORMAT!r}, {VERSION})")
    try:
        return from_dict(data)
    except (KeyError, TypeError) as error:
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
            "noisiness": list(held.noisiness),
        },
        "calibration": None
        if calibration is None
        else {
            "shape": _shape_to_dict(calibration.shape),
            "model": asdict(calibration.model),
            "norms": calibration.norms.tolist(),
        },
        "facts": asdict(prior.facts),
        "guard": prior.guard,
    }


def from_dict(data: Mapping[str, Any]) -> Prior:
    """Inverse of `to_dict`."""
    basis = None if data["basis"] is None else Basis.from_dict(data["basis"])
    held, found = data["heldout"], data["calibration"]
    facts: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in data["facts"].items()
    }
    calibration = None
    if found is not None and basis is not None:
        calibration = Calibration(
            _shape_from_dict(found["shape"], basis),
            TaskModel(**found["model"]),
            np.array(found["norms"], dtype=np.float64),
        )
    return Prior(
        space=Space.from_dict(data["space"]),
        model=TaskModel(**data["model"]),
        shape=None if basis is None else _shape_from_dict(data["shape"], basis),
        heldout=HeldOut(
            np.array(held["tasks"], dtype=np.intp),
            np.array(held["gains"], dtype=np.float64),
            np.array(held["cold"], dtype=np.float64),
            held["share"],
            held["floor"],
            tuple(held.get("noisiness", EQUALLY)),  # not in the first files of this version
        ),
        calibration=calibration,
        facts=Facts(**facts),
        guard=data["guard"],
    )


def _shape_to_dict(shape: LearnedShape) -> dict[str, Any]:
    return {
        "mu": shape.mu.tolist(),
        "directions": shape.directions.T.tolist(),
        "eta": shape.eta.tolist(),
        "floor": shape.floor,
    }


def _shape_from_dict(data: Mapping[str, Any], basis: Basis) -> LearnedShape:
    directions = np.array(data["directions"], dtype=np.float64).reshape(-1, basis.r).T
    return LearnedShape(
        basis,
        np.array(data["mu"], dtype=np.float64),
        np.ascontiguousarray(directions),
        np.array(data["eta"], dtype=np.float64),
        data["floor"],
    )
