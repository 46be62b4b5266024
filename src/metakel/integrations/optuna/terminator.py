"""The certificate of a study as an evaluator of ``optuna.terminator``.

Optuna has deprecated this module; `StopAtCallback` does the same without it.
"""

from __future__ import annotations

from optuna.study import Study, StudyDirection
from optuna.terminator import BaseImprovementEvaluator
from optuna.trial import FrozenTrial

from metakel.integrations.optuna.stopping import sampler_of


class MetaKelRegretEvaluator(BaseImprovementEvaluator):  # type: ignore[misc, unused-ignore]
    """Improvement that is still possible, by the certificate of a `MetaKelSampler`.

    ``Terminator(MetaKelRegretEvaluator(study), StaticErrorEvaluator(0.01), min_n_trials=1)``
    stops at a certified regret of 0.01.

    Parameters
    ----------
    study : Study
        Whose sampler is a `MetaKelSampler`.
    delta : float
        Probability with which the certificate may fail.
    """

    def __init__(self, study: Study, *, delta: float = 0.2) -> None:
        sampler_of(study)
        self._study, self._delta = study, delta

    def evaluate(self, trials: list[FrozenTrial], study_direction: StudyDirection) -> float:
        """The certified regret; inf where nothing is promised."""
        sampler = sampler_of(self._study)
        return sampler.certificate(self._study, delta=self._delta, trials=trials).regret
