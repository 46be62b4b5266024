"""From finished studies to a prior, on the parameters that all of them have."""

from __future__ import annotations

import logging
from typing import Any

from metakel.errors import InputError
from metakel.prior import Prior, learn_prior
from metakel.readers import read_studies
from metakel.space import Fixed, Space
from metakel.tasks import History

LOGGER = logging.getLogger("metakel")


def prior_from_studies(source: Any) -> Prior | None:
    """What a storage or a sequence of studies teaches; None where no trial was completed."""
    if isinstance(source, (list, tuple)):
        source = [study for study in source if _completed(study)]
        if not source:
            return None
    found = read_studies(source)
    if not found.columns["value"]:
        return None
    assert found.space is not None  # studies know their parameters
    shared = [
        p for p in found.space.parameters if all(v is not None for v in found.columns[p.name])
    ]
    left_out = [name for name in found.space.names if name not in {p.name for p in shared}]
    if left_out:
        LOGGER.info("not in every past trial, so not learned from: %s", ", ".join(left_out))
    if all(isinstance(p, Fixed) for p in shared):
        raise InputError(
            "no parameter is in every completed trial of the source studies; found "
            f"{', '.join(found.space.names)}, each in some of them only"
        )
    prior = learn_prior(History.from_optuna(source, space=Space(tuple(shared))))
    if not prior.used:
        LOGGER.info("held-out studies are not predicted better with the others: a cold start")
    return prior


def _completed(study: Any) -> bool:
    if not hasattr(study, "get_trials"):
        raise InputError(f"source_studies holds {study!r}; expected Optuna studies")
    return any(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False))
