"""Models and acquisitions of a stored optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from metakel.errors import InputError
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.level_sets import LevelSet
from metakel.optimize.mixture import MixtureModel, load_mixture
from metakel.optimize.model import Model
from metakel.optimize.safe import SafeModel


def model_from_dict(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> Model:
    """Inverse of `Model.to_dict`, whichever model it was."""
    kind = data["kind"]
    if kind == CertifiedModel.kind:
        return CertifiedModel.from_dict(data, functions)
    if kind == SafeModel.kind:
        return SafeModel.from_dict(data, functions)
    if kind == MixtureModel.kind:
        return load_mixture(data)
    raise InputError(f"stored model is of kind {kind!r}; known: certified, safe, mixture")


def stored_acquisition(acquisition: str | Acquisition) -> str | dict[str, Any]:
    """As JSON."""
    if isinstance(acquisition, LevelSet):
        return asdict(acquisition)
    if isinstance(acquisition, str):
        return acquisition
    raise InputError("an acquisition that is a function cannot be stored")


def read_acquisition(stored: str | Mapping[str, Any]) -> str | LevelSet:
    """Inverse of `stored_acquisition`."""
    return LevelSet(**stored) if isinstance(stored, Mapping) else stored
