r"""When to stop, so that few of the searches that stop are wrong.

A certificate counts its failures among all searches, also those that never stop. Where few stop,
many of these may be wrong. The rule here is chosen for them. With r_t the regret and g_t the shape
of a replayed past task, a search with factor c stops at the first time at which
:math:`c\,g_t \le \varepsilon`. It is wrong if :math:`r_t > \varepsilon` then. Of the replays N stop
and W of these are wrong. From the factor that stops half of them to smaller ones, c is the last for
which a binomial test at a level of 20 % rejects that the share of wrong stops is above delta
(Learn-then-Test; see ``docs/theory.md``). Where no c passes, the past cannot vouch for
stopping, and no search stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from metakel._arrays import Array

# Factors that are tried, relative to the one above which no search stops.
FACTORS = np.geomspace(1e-4, 1.0, 81)
LEVEL = 0.2  # of the test
BEGIN = 0.5  # the first factor that is tested stops this share of the replays


def stops(regrets: Array, shapes: Array, factor: float, tolerance: float) -> tuple[int, int]:
    """How many of the replays (m, T) stop, and how many of these are wrong."""
    if not len(regrets):
        return 0, 0
    with np.errstate(invalid="ignore"):  # NaN where a replay had ended
        stopped = factor * shapes <= tolerance
    first, some = stopped.argmax(axis=1), stopped.any(axis=1)
    wrong = regrets[np.arange(len(regrets)), first] > tolerance
    return int(some.sum()), int((some & wrong).sum())


@dataclass(frozen=True, eq=False)
class Replayed:
    """Regrets and shapes of the replays after every value, (m, T) each; NaN after their end."""

    regrets: Array
    shapes: Array

    def too_few(self, delta: float) -> bool:
        """Whether no test can pass, not even if all stop and none is wrong."""
        return (1 - delta) ** len(self.regrets) > LEVEL

    def factor(self, tolerance: float, delta: float) -> tuple[float, int, int]:
        """c, and how many replays it stops and how many of these wrongly; inf where none passes."""
        from scipy.special import bdtr

        found = inf, 0, 0
        least = float(np.nanmin(self.shapes, initial=inf)) or 1.0
        for c in FACTORS[::-1] * tolerance / least:
            count, wrong = stops(self.regrets, self.shapes, float(c), tolerance)
            if (1 - delta) ** count > LEVEL or count < BEGIN * len(self.regrets):
                continue  # too few stop for any test, or for one of much power
            if bdtr(wrong, count, delta) > LEVEL:
                break
            found = float(c), count, wrong
        return found

    def smallest(self, delta: float, spread: float) -> float:
        """The smallest tolerance for which a factor passes, within a tenth; inf for none."""
        for tolerance in spread * np.geomspace(1e-3, 1.0, 73):
            if isfinite(self.factor(float(tolerance), delta)[0]):
                return float(tolerance)
        return inf


@dataclass(frozen=True, eq=False)
class Stopping:
    """The rule, and the search that it is asked about.

    Parameters
    ----------
    spread, unit : float
        The usual range of the values of a task, in units of the output, and one unit of the model
        in those.
    delta : float
        At most this share of the searches that stop may be wrong.
    replayed : Replayed or None
        What the rule is chosen from; without, a search stops once its certificate is small enough.
    shapes : tuple of float
        Of this search after each value, as long as it follows the rule that was replayed.
    """

    spread: float
    unit: float = 1.0
    delta: float = 1.0
    replayed: Replayed | None = None
    shapes: tuple[float, ...] = ()

    def reached(self, tolerance: float) -> str:
        """Why the search stops at this regret; empty while it does not."""
        if self.replayed is None or not self.shapes:
            return ""
        small = tolerance / self.unit
        factor, count, wrong = self.replayed.factor(small, self.delta)
        if factor * min(self.shapes) > small:
            return ""
        return f"{wrong} of {count} past searches that would have stopped so were wrong"

    def outlook(self, tolerance: float) -> str:
        """Why no search ever stops at this regret; empty where some do."""
        if self.replayed is None:
            return ""
        factor, _, _ = self.replayed.factor(tolerance / self.unit, self.delta)
        if isfinite(factor):
            return ""
        smallest = self.unit * self.replayed.smallest(self.delta, self.spread / self.unit)
        more = "a larger delta or more past tasks may help"
        if not isfinite(smallest):
            return f"no search could stop on past tasks with so few errors; {more}"
        return (
            f"no search could stop there on past tasks with so few errors: the smallest is "
            f"{smallest:.2g} ({smallest / self.spread:.1%} of the usual spread); {more}"
        )
