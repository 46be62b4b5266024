"""How sure one can be: band, certificate and alarm, from the values told so far."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from metakel._arrays import Array
from metakel.errors import InputError
from metakel.priors import Prior, SpaceOptimizer
from metakel.tuner.lazy_band import LazyBand
from metakel.tuner.normalise import Configuration
from metakel.tuner.options import Settings
from metakel.tuner.trials import AlarmRaised, Trial

POOL = 1000
# Below this posterior weight the history is given up. If the learned belief is right, its weight
# ever falls from 0.95 to 0.01 with probability below 0.06 % (Ville's inequality).
LOST_TRUST = 0.01


@dataclass(frozen=True)
class Certificate:
    """With probability 1 - delta, at all times: the best possible value minus the best certain one.

    Parameters
    ----------
    regret : float
        How much better than ``configuration`` any configuration looked at can be; inf: no promise.
    configuration : dict or None
        The one told that is certain to be at least as good as any other is certain to be.
    lower, upper : float
        Bounds of its value.
    why : str
        Why nothing is promised; empty where something is.
    """

    regret: float
    configuration: Configuration | None
    lower: float
    upper: float
    why: str = ""


class Monitor:
    """Follows the values told, one by one; equal values give equal answers in every process."""

    def __init__(self, prior: Prior, settings: Settings) -> None:
        self._minimize = prior.info.minimize
        # Numbers that a run keeps do not depend on who looks, or how often.
        rng = np.random.default_rng(settings.seed)
        optimizer = prior.optimizer(
            rng=rng, fixed=dict(settings.fixed), extrapolate=settings.extrapolate
        )
        assert isinstance(optimizer, SpaceOptimizer)
        self._optimizer = optimizer
        self.band, self.no_band = _band(prior, settings)
        self._pool = _pool(prior, settings, rng)
        self._told: list[Configuration] = []
        self._certificate: Certificate | None = None
        self.alarm: AlarmRaised | None = None
        self.trust = optimizer.trust
        self._guarded = prior.helps and prior.cold_weight > 0

    @property
    def t(self) -> int:
        """How many values it has seen."""
        return len(self._told)

    def tell(self, trial: Trial) -> None:
        """Take in one value."""
        assert trial.value is not None
        self._optimizer.tell(trial.configuration, trial.value)
        self._told.append(trial.configuration)
        self._certificate = None
        self.trust = self._optimizer.trust
        contradicted = ""
        if self.band is not None:
            self.band.tell(trial.configuration, trial.value)
            contradicted = self.band.alarm
        if self.alarm is None and contradicted:
            self.alarm = AlarmRaised(self.t, f"the confidence band is contradicted: {contradicted}")
        elif self.alarm is None and self._guarded and self.trust < LOST_TRUST:
            reason = f"the values speak for a cold start: trust in the history is {self.trust:.1g}"
            self.alarm = AlarmRaised(self.t, reason)

    @property
    def certificate(self) -> Certificate:
        """Over a pool of configurations spread over the space, or all candidates."""
        if self.band is None or not self._told:
            return Certificate(inf, None, -inf, inf, self.no_band or "nothing was told yet")
        if self._certificate is None:
            self._certificate = self._certified(self.band)
        return self._certificate

    def _certified(self, band: LazyBand) -> Certificate:
        lower, upper = band.interval([*self._told, *self._pool])
        good = -upper if self._minimize else lower  # certain value, the larger the better
        hope = -lower if self._minimize else upper
        best = int(np.argmax(good[: self.t]))
        regret = max(float(hope.max() - good[best]), 0.0)
        return Certificate(regret, self._told[best], float(lower[best]), float(upper[best]))

    def predict(self, configurations: list[Configuration]) -> tuple[Array, Array]:
        """Expected values and their standard deviations."""
        return self._optimizer.predict(configurations)

    def interval(self, configurations: list[Configuration]) -> tuple[Array, Array]:
        """Bounds of the values of configurations; needs a band."""
        if self.band is None:
            raise InputError(f"there is no confidence band: {self.no_band}")
        return self.band.interval(configurations)


def _band(prior: Prior, settings: Settings) -> tuple[LazyBand | None, str]:
    if settings.extrapolate:
        return None, "values beyond the recorded ranges are allowed"
    if not prior.helps:
        return None, "the history is not used"
    try:
        return LazyBand(prior.confidence(delta=settings.delta)), ""
    except InputError as error:
        return None, str(error)


def _pool(prior: Prior, settings: Settings, rng: np.random.Generator) -> list[Configuration]:
    if settings.candidates is not None:
        rows = settings.candidates.points
        prior.space.encode(
            rows, extrapolate=settings.extrapolate
        )  # refuses what the space does not know
        return rows
    points = prior.space.sample(rng, POOL, fixed=settings.fixed, extrapolate=settings.extrapolate)
    return prior.space.decode(points)
