r"""The best point, how far it can be from the optimum, and when a search stops by that.

With a norm bound, a certificate comes from the bounds of the model. With a prior it comes from
replays on past tasks (`metakel.optimize.replays`).

It counts its failures among all searches, also those that never stop. Where few stop, many of these
may be wrong. The rule here is chosen for them. With r_t the regret and g_t the shape of a replayed
past task, a search with factor c stops at the first time at which
:math:`c\,g_t \le \varepsilon`. It is wrong if :math:`r_t > \varepsilon` then. Of the replays N stop
and W of these are wrong. From the factor that stops half of them to smaller ones, c is the last for
which a binomial test at a level of 20 % rejects that the share of wrong stops is above delta
(Learn-then-Test; see ``docs/theory.md``). Where no c passes, the past cannot vouch for
stopping, and no search stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

from metakel._arrays import Array, is_number, shown
from metakel.charts import card, paragraph, short
from metakel.errors import InputError

CertificateBasis = Literal["norm bound", "exact", "folds", "emulated"]
UNBOUNDED = (
    "nothing bounds the values far from the observed points; more observations, a norm bound, base "
    "kernels with derivatives or a finite domain (grid, candidates) do"
)
# Factors that are tried, relative to the one above which no search stops.
FACTORS = np.geomspace(1e-4, 1.0, 81)
LEVEL = 0.2  # of the test
BEGIN = 0.5  # the first factor that is tested stops this share of the replays


@dataclass(frozen=True, eq=False)
class Best:
    """The best point that was observed.

    Parameters
    ----------
    x : array or dict
        The point.
    value : float
        What the model takes the objective to be there. A certified model gives the posterior mean
        of the point with the largest lower bound; a prior gives the best observed value.
    lower, upper : float
        Confidence bounds of the objective there; infinite where nothing is promised.
    """

    x: Any
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Certificate:
    """With probability 1 - delta, at all times: how far the best point can be from the optimum.

    Parameters
    ----------
    regret : float
        How much better than ``x`` any point of the domain can be; inf where nothing is promised.
    x : array, dict or None
        The observed point that this is about. With a norm bound, the one whose lower bound is
        largest; otherwise the one with the best value.
    lower, upper : float
        Bounds of its value; the observed value itself where regrets are between observed values.
    delta : float
        Probability with which all of this may fail.
    reason : str
        Why nothing is promised; empty where something is.
    final : bool
        Whether no observation can change that nothing is promised.
    basis : "norm bound", "exact", "folds" or "emulated"
        A confidence band for functions of bounded norm, or replays of the optimizer on past tasks:
        on their recorded rows with a prior learned from other tasks, the same in folds, or on
        draws of a Gaussian process given their runs (`RegretScores`).
    tasks : int
        How many past tasks vouch for it.
    among : str
        Of which configurations it speaks, one word, as "candidate" for a table; empty for all.
    range_end : float or None
        The end of the output's range where that is the only bound.
    stopping : Stopping or None
        The usual spread of a task, and the rule by which a search stops, where there are past ones.
    """

    regret: float
    x: Any = None
    lower: float = -inf
    upper: float = inf
    delta: float = 1.0
    reason: str = ""
    basis: CertificateBasis = "norm bound"
    tasks: int = 0
    among: str = ""
    range_end: float | None = None
    final: bool = False
    stopping: Stopping | None = None

    def as_dict(self) -> dict[str, Any]:
        """What a program may read, as JSON."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "stopping"}
        return {**found, "spread": self.spread}

    @property
    def spread(self) -> float | None:
        """The usual range of the values of a task, in units of the output, where it is known."""
        return None if self.stopping is None else self.stopping.spread

    def reached(self, stop_at: float | str) -> str:
        """Why a search stops at this regret, text such as "1%" being a share of the usual spread.

        Empty while it goes on. By replays on past tasks at most a share delta of the searches that
        stop is wrong (`Stopping`); otherwise the regret itself must be so small.
        """
        if self.reason or self.regret == inf:
            return ""
        tolerance = as_tolerance(stop_at, self.spread)
        ruled = self.stopping is not None and self.stopping.replayed is not None
        ruled = ruled and self.range_end is None
        if self.regret <= tolerance and not ruled:
            return f"{self} (stop_at={stop_at})"
        why = self.stopping.reached(tolerance) if self.stopping is not None else ""
        odds = Fraction(self.delta).limit_denominator(100)
        return why and (
            f"no {self.among or 'configuration'} is better by more "
            f"than {tolerance:.2g} (stop_at={stop_at}): wrong in about {odds.numerator} of "
            f"{odds.denominator} searches that stop, on tasks like these "
            f"({'emulated; ' if self.basis == 'emulated' else ''}{why})"
        )

    def outlook(self, stop_at: float | str) -> str:
        """Why no search will stop at this regret; empty where one may."""
        if self.final:
            return self.reason
        if self.stopping is None:
            return ""
        return self.stopping.outlook(as_tolerance(stop_at, self.spread))

    def __str__(self) -> str:
        if self.range_end is not None:
            return (
                "the only bound so far is the range of the output itself, which ends at "
                f"{self.range_end:g}: at most {self.regret:.2g} better"
            )
        if self.reason:
            return f"no certificate: {self.reason}"
        if self.basis == "norm bound":
            return (
                f"no {self.among}{' ' * bool(self.among)}configuration is better than the best one "
                f"by more than {self.regret:.3g}, with probability {1 - self.delta:g}"
            )
        everywhere = self.basis == "emulated" and not self.among
        none = "no configuration" if everywhere else "none of the candidates"
        emulated = " (checked on emulated tasks)" if self.basis == "emulated" else ""
        return (
            f"{none} is better by more than {self.regret:.2g}, with probability {1 - self.delta:g} "
            f"for tasks like the past ones{emulated}"
        )

    def _repr_html_(self) -> str:
        about = "" if self.x is None else paragraph(f"about the best point, {describe(self.x)}")
        return card("Certificate", paragraph(str(self)), about)


def describe(x: Any) -> str:
    """A point in one line, as people read it."""
    if not isinstance(x, Mapping):
        return "(" + ", ".join(short(value, 4) for value in np.asarray(x).tolist()) + ")"
    return ", ".join(f"{name}={short(value, 4)}" for name, value in x.items())


def as_tolerance(stop_at: float | str, spread: float | None) -> float:
    """A regret in units of the output; text such as "1%" is a share of the usual spread."""
    if isinstance(stop_at, str):
        number, percent = stop_at.strip().removesuffix("%"), stop_at.strip().endswith("%")
        try:
            value = float(number)
        except ValueError:
            raise InputError(
                f'stop_at is {stop_at!r}; expected a number, or a share of the spread as in "1%"'
            ) from None
        if percent and spread is None:
            raise InputError(
                f"stop_at is {stop_at!r}, but the usual spread of a task is not known; expected a "
                "number, or a prior whose certificate was calibrated (learn_prior)"
            )
        stop_at = value / 100 * (spread or 0.0) if percent else value
    if not (is_number(stop_at) and isfinite(stop_at) and stop_at >= 0):
        raise InputError(f"stop_at is {shown(stop_at)}; expected a number >= 0")
    return float(stop_at)


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
    """The rule, and the search that it is asked about."""

    spread: float  # the usual range of the values of a task, in units of the output
    unit: float = 1.0  # one of the model, in units of the output
    delta: float = 1.0  # at most this share of the searches that stop may be wrong
    # What the rule is chosen from; without, a search stops once its certificate is small enough.
    replayed: Replayed | None = None
    # Of this search after each value, as long as it follows the rule that was replayed.
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
