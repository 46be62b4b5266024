"""Stop a study once its best trial is certified, by a callback."""

from __future__ import annotations

from optuna.study import Study
from optuna.trial import FrozenTrial

from metakel.errors import InputError
from metakel.integrations.optuna.sampler import MetaKelSampler
from metakel.integrations.optuna.search_space import LOGGER
from metakel.optimize.certificate import as_tolerance

CERTIFICATE = "metakel:certificate"  # a user attribute of the study


class StopAtCallback:
    """Callback that stops a study of a `MetaKelSampler` once the regret is small enough.

    ``study.optimize(objective, n_trials=100, callbacks=[StopAtCallback("1%")])``. The certificate
    is logged, and noted as the user attribute ``metakel:certificate`` of the study. Where there can
    be none, a warning says why, and the study goes on.

    Parameters
    ----------
    stop_at : float or str
        The regret at which to stop, in units of the objective, or as in "1%" of the usual spread
        of a past study.
    delta : float
        Probability with which the certificate may fail.
    """

    def __init__(self, stop_at: float | str, *, delta: float = 0.2) -> None:
        if not isinstance(stop_at, str) or not stop_at.strip().endswith("%"):
            as_tolerance(stop_at, None)
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}; expected a number between 0 and 1")
        self.stop_at, self.delta = stop_at, delta
        self._warned: set[str] = set()

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """After a trial of the study."""
        sampler = sampler_of(study)
        certificate = sampler.certificate(study, delta=self.delta)
        why = certificate.reason and str(certificate)
        if outlook := not why and certificate.outlook(self.stop_at):
            why = f"stop_at={self.stop_at} will not stop it: {outlook}"
        if why:
            if why not in self._warned:
                LOGGER.warning("study %r: %s", study.study_name, why)
            self._warned.add(why)
        elif reached := certificate.reached(self.stop_at):
            LOGGER.info("study %r stops: %s", study.study_name, reached)
            study.set_user_attr(CERTIFICATE, str(certificate))
            study.stop()


def sampler_of(study: Study) -> MetaKelSampler:
    """The sampler of a study, which has to be a `MetaKelSampler`."""
    if not isinstance(study.sampler, MetaKelSampler):
        raise InputError(
            f"study {study.study_name!r} has a {type(study.sampler).__name__}; expected a "
            "MetaKelSampler, as certificates are about its choices"
        )
    return study.sampler
