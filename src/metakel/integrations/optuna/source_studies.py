"""From finished studies to a prior, on the parameters that all of them have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import isfinite
from typing import Any

from optuna.study import Study

from metakel.data import History
from metakel.io.optuna import RecordedStudy, recorded_studies
from metakel.optimize.regret import RegretCalibration
from metakel.priors import Prior, learn_prior

LOGGER = logging.getLogger("metakel")


class SourceStudies:
    """Finished studies by their values, and what they teach.

    Storages are read once, here: what is kept can be sent to another process.

    Parameters
    ----------
    source : sequence of studies, or a storage
    """

    def __init__(self, source: Any) -> None:
        studies = recorded_studies(source)
        self._studies = tuple(study for study in studies if _teaches(study))
        self.prior = _learned(self._studies)

    def holds(self, study: Study) -> bool:
        """Whether the study was among those learned from."""
        return any(record.is_of(study) for record in self._studies)

    def without(self, study: Study) -> Prior | None:
        """What the other studies teach: a study that is resumed is not its own past."""
        others = tuple(record for record in self._studies if not record.is_of(study))
        LOGGER.info(
            "study %r is in the source of its own past: learned from the other %d studies",
            study.study_name,
            len(others),
        )
        return _learned(others)

    def calibration(self, study: Study) -> RegretCalibration | None:
        """What replays on the studies say of the regret; this takes some seconds."""
        others = tuple(record for record in self._studies if not record.is_of(study))
        if not others:
            return None
        LOGGER.info("replaying the sampler on %d past studies, for a certificate", len(others))
        return learn_prior(History.from_optuna(others), certify="folds").certificate


def _teaches(study: RecordedStudy) -> bool:
    return bool(study.parameters) and any(isfinite(value) for _, value in study.rows)


def _learned(studies: Sequence[RecordedStudy]) -> Prior | None:
    """None where there is nothing to learn from."""
    if not studies:
        LOGGER.warning(
            "the past has no completed trial with parameters and a finite value: a cold start"
        )
        return None
    prior = learn_prior(History.from_optuna(studies), certify="none")
    for note in prior.info.notes:
        LOGGER.info("past studies: %s", note)
    if not prior.helps:
        LOGGER.info("held-out studies are not predicted better with the others: a cold start")
    return prior
