"""GP-UCB (Eq. 11): the model of a kernel, and an optimizer that maximises its upper bounds.

The bounds are those of a confidence sequence (Theorem 5.1), or of a posterior with fixed nu.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, log, sqrt
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from metakel._arrays import Array, as_number, positive
from metakel._files import decode, encode
from metakel.confidence.fallback import Alarm, AlarmEvent, everything
from metakel.confidence.methods import Center, center_at, negative, storable_center
from metakel.confidence.sequence import ConfidenceSequence
from metakel.confidence.set import (
    Batch,
    ConfidenceSet,
    Spectrum,
    closed_form_set,
    no_observations,
)
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum, as_kernel
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.model import LOADERS, Model, Score
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.outcomes import Outcomes, nothing
from metakel.optimize.upper_bound import (
    FixedNu,
    Schedule,
    StartFeatures,
    UpperBound,
    checked_schedule,
)
from metakel.search import Domain, StartPoints
from metakel.search.named import as_domain
from metakel.space import Space


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedModel(Model):
    """The objective lies in the space of a kernel; bounds from a `ConfidenceSequence`.

    Parameters
    ----------
    kernel : KernelSum
    sequence : ConfidenceSequence or None
        The bounds. None promises nothing.
    fixed : FixedNu or None
        What decides instead of the bounds.
    noise_std : float
        Noise of an observation that has no other.
    center : (n, d0) -> (n,), optional
        What the objective is expected to be, the centre of the sequence; 0 where None.
    probes : int
        How many of the first points, after one, go where all base kernels know least.
    stops : bool
        Whether nothing is asked for after an alarm, until it is accepted.
    outcomes : Outcomes, optional
        What it was given.
    raised : Alarm or None
        By the values that it was given last, where alarms are to be raised.
    """

    kind: ClassVar[str] = "certified"

    kernel: KernelSum
    sequence: ConfidenceSequence | None
    fixed: FixedNu | None
    noise_std: float
    center: Center | None = None
    probes: int = 0
    stops: bool = False
    outcomes: Outcomes | None = None
    raised: Alarm | None = None
    _pending: Array = field(default_factory=lambda: np.zeros((0, 1)))
    _features: StartFeatures | None = None
    _empty: Self | None = None  # before any value

    @classmethod
    def of(
        cls,
        sequence: ConfidenceSequence,
        domain: Domain | None = None,
        *,
        minimize: bool = False,
        probes: int = 0,
    ) -> Self:
        """With the assumptions of a sequence, before any observation."""
        if sequence.t:
            raise InputError(
                f"the sequence has {sequence.t} observations; expected none: tell the optimizer"
            )
        points = None if domain is None else domain.points
        assumed = sequence.over(points, negated=minimize)
        probes = int(as_number("probes", probes, 0))
        if probes and sequence.method != "dmm":
            raise InputError(
                f"probes is {probes}, but there is no alarm to hear them; expected 0, or a "
                'sequence with method="dmm"'
            )
        options = assumed.options
        return cls(
            assumed.kernel,
            assumed,
            None,
            options.noise_std,
            center=assumed.center,
            probes=probes,
            stops=options.on_alarm == "stop",
        )

    @property
    def d0(self) -> int | None:
        return self.kernel.d0

    def prepare(self, start: StartPoints) -> Self:
        """Ready to be searched from these points; an error where the kernel does not fit them."""
        self.kernel.base.points(start.X)
        return replace(self, _features=StartFeatures(start))

    def given(self, outcomes: Outcomes) -> Self:
        """Given all outcomes of a record, batch by batch in their order.

        A confidence sequence depends on the way that it took, so that it begins again where the
        record is no extension of the last one.
        """
        empty, model = self._empty or self, self
        known = self.outcomes or nothing(outcomes.X.shape[1])
        since = known.t
        if outcomes.shared(known) < since or outcomes.ends[: len(known.ends)] != known.ends:
            model, since = empty, 0
        sequence, fixed, raised = model.sequence, model.fixed, None
        noise = np.where(np.isnan(outcomes.noise_std), self.noise_std, outcomes.noise_std)
        for start, end in pairwise((since, *(end for end in outcomes.ends if end > since))):
            X, y, level = (part[start:end] for part in (outcomes.X, outcomes.y, noise))
            if fixed is not None:
                fixed = fixed.observe(Batch(X, y - self._center_at(X), level))
            if sequence is not None:
                sequence, alarm = sequence.extended(X, y, level)
                raised = raised or alarm
        given = replace(self, sequence=sequence, fixed=fixed, outcomes=outcomes, raised=raised)
        return replace(given, _pending=empty._pending, _empty=empty)

    def _center_at(self, Z: Array) -> Array | float:
        if self.center is None:
            return 0.0
        at = center_at if self._features is None else self._features.center_at
        return at(self.center, Z)

    @property
    def _slack(self) -> float:
        """How far the objective may be from the functions of the set that decides."""
        return 0.0 if self.fixed is not None else self.certified.options.slack

    def with_fantasies(self, X: Array) -> Self:
        """With smaller widths around the points (q, d0), and the same means."""
        return replace(self, _pending=X)

    # What it answers

    @property
    def certified(self) -> ConfidenceSequence:
        """The confidence sequence; an error where there is none."""
        if self.sequence is None:
            raise InputError(self.no_bounds)
        return self.sequence

    @property
    def no_bounds(self) -> str:
        nothing = "a fixed nu alone promises nothing; give bounds= to FixedWidth for confidence"
        return nothing if self.sequence is None else ""

    @property
    def delta(self) -> float:
        return 1.0 if self.sequence is None else self.sequence.delta

    @property
    def alarm(self) -> AlarmEvent | None:
        return None if self.sequence is None else self.sequence.alarm

    @property
    def transfer_weight(self) -> float:
        """1 as long as the kernel that was given is believed, 0 after a fallback."""
        return float(self._deciding.kernel is self.kernel)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the mixture behind the radius, for the default method."""
        return 0.0 if self.sequence is None else self.sequence.log_evidence

    @property
    def scale(self) -> float:
        """The range of the upper bounds over the start points."""
        if self._features is None:
            return 1.0
        return float(np.ptp(self.upper_bound().values(self._features.start.X))) or 1.0

    @property
    def _deciding(self) -> ConfidenceSet:
        """The set that decides; where nothing fits any more, one that still explores.

        Nothing fits when the noise is larger than was said. The upper bounds are infinite then and
        of no use for a choice, so the posterior with the largest scale of the mixture stands in.
        """
        if self.fixed is not None:
            return self.fixed.current
        sequence = self.certified
        if sequence.hypothesis is not None:
            return sequence.current
        scale = sequence.largest_norm_scale
        spectrum = sequence.spectrum(np.zeros((0, 1)))
        nu = scale * sqrt(2 * log(1 / sequence.delta_deciding))
        return closed_form_set(spectrum, alpha=scale**-2.0, nu=nu)

    @property
    def spectrum_ahead(self) -> Spectrum:
        """Observations, and fantasies as if they had been measured."""
        return self.certified.spectrum(self._pending)

    def _spectrum(self, deciding: ConfidenceSet) -> Spectrum:
        if not len(self._pending):
            return deciding.spectrum
        source = self.certified if self.fixed is None else self.fixed
        return source.spectrum(self._pending)

    def first_score(self) -> Score | None:
        """The standard deviation with all base kernels, for the probes; then None.

        GP-UCB looks where its kernel fits, and would not hear that another one is missing.
        """
        seen = [self._pending] if self.outcomes is None else [self._pending, self.outcomes.X]
        if self.sequence is None or not 1 <= sum(map(len, seen)) <= self.probes:
            return None
        kernel = self.sequence.full or everything(self.kernel)
        data = no_observations(kernel)
        for X in seen:
            if len(X):
                data = data.append(Batch(X, np.zeros(len(X)), np.full(len(X), self.noise_std)))
        alpha = self.sequence.largest_norm_scale**-2.0
        alone = closed_form_set(data.spectrum(), alpha=alpha, nu=1.0)
        spread = UpperBound(alone, alone.spectrum)
        return Score(spread.upper, spread.upper_and_gradient if kernel.smooth else None)

    def upper_bound(self) -> Score:
        """The upper bound, less wide around fantasies (Eq. 11); on a finite domain of all times."""
        deciding = self._deciding
        score = self._score(UpperBound(deciding, self._spectrum(deciding)))
        if self.fixed is not None or self.certified.points is None:
            return score
        ceiling = self.certified.interval()[1]
        start = None if self._features is None else self._features.start.X

        def values(Z: Array) -> Array:
            if Z is not start:
                return score.values(Z)
            if not len(self._pending) and np.isfinite(ceiling).all():
                return ceiling  # nothing is pending, and the present set is one of all times
            return np.minimum(score.values(Z), ceiling)

        return Score(values)

    def _score(self, bound: UpperBound) -> Score:
        kernel, center = bound.set.kernel, self.center
        look = None if self._features is None else self._features.at

        def values(Z: Array) -> Array:
            upper = bound.upper(Z, None if look is None else look(kernel, Z))
            return upper + self._center_at(Z) + self._slack

        def with_gradient(Z: Array) -> tuple[Array, Array]:
            upper, slopes = bound.upper_and_gradient(Z)
            if isinstance(center, KernelFunction):
                height, rise = center.value_and_gradient(Z)
                upper, slopes = upper + height, slopes + rise
            return upper + self._slack, slopes

        climbs = center is None or (isinstance(center, KernelFunction) and center.kernel.smooth)
        return Score(values, with_gradient if kernel.smooth and climbs else None)

    def bounds(self, Z: Array) -> tuple[Array, Array]:
        return self.certified.interval(Z)

    def bounds_within(self, Z: Array) -> tuple[Array, Array]:
        """`bounds` for a search: over all times at points of a finite domain, else not refined."""
        sequence = self.certified
        if sequence.points is None:
            return sequence.interval(Z, refine=False)
        lower, upper = sequence.interval()
        if len(Z) == len(lower) and (sequence.points == Z).all():
            return lower, upper
        apart = (np.abs(sequence.points - z).max(axis=1) for z in Z)
        rows = np.array([np.argmin(each) for each in apart], dtype=np.intp)
        if (sequence.points[rows] == Z).all():
            return lower[rows], upper[rows]
        return sequence.interval(Z, refine=False)

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """(n,) posterior means and standard deviations; fantasies shrink the latter."""
        deciding = self._deciding
        believed = self.fixed is None and self.certified.hypothesis is not None
        alpha = self.certified.alpha if believed else float(deciding.alphas[0])
        mean = deciding.mean(Z, alpha) + self._center_at(Z)
        spectrum = self._spectrum(deciding)
        inside, outside = spectrum.project(Z)
        variance = spectrum.inverse(np.array([alpha]))[0] @ inside**2 + outside / max(alpha, 1e-300)
        return mean, np.sqrt(variance)

    def largest_upper(self, domain: Domain, start: StartPoints) -> float:
        """The largest upper bound in the domain: exact on a finite one, else by a search.

        Never below the upper bounds of the points that were observed. Between the points that a
        search has looked at, a kernel without derivatives can do anything that its norm allows.
        """
        if domain.points is not None:
            return float(self.bounds_within(domain.points)[1].max())
        current = self.certified.current
        if not current.kernel.smooth:
            kernel, active = current.kernel, current.kernel.active
            largest = float(kernel.eta[active] @ np.asarray(kernel.base.sup)[active])  # k(x, x)
            if self.center is not None or not np.isfinite(largest):  # nothing says how large it is
                return inf
            return current.norm_bound * sqrt(largest) + self._slack
        if not np.isfinite(current.norm_bound) and np.isinf(current.upper(start.X)).any():
            return inf
        score = self._score(UpperBound(current, current.spectrum))
        _, values = domain.maximizers(score, start)
        return max(float(values.max()), self._largest_observed(domain))

    def _largest_observed(self, domain: Domain) -> float:
        """The largest upper bound of an observed point of the domain."""
        X = np.zeros((0, domain.d0)) if self.outcomes is None else self.outcomes.X
        if domain.narrowed and len(X):
            X = X[domain.contains(X)]
        return float(self._at_observed(X)[2].max()) if len(X) else -inf

    def best(self, outcomes: Outcomes) -> tuple[int, float, float, float]:
        """The observed point with the largest lower bound; where all are infinite, mean."""
        mean, lower, upper = self._at_observed(outcomes.X)
        height = lower if np.isfinite(lower).any() else mean
        chosen = int(np.argmax(np.where(outcomes.counts, height, -inf)))
        low, high = float(lower[chosen]), float(upper[chosen])
        return chosen, min(max(float(mean[chosen]), low), high), low, high

    def certain(self, outcomes: Outcomes) -> tuple[int, float, float]:
        """The same point as `best`."""
        chosen, _, lower, upper = self.best(outcomes)
        return chosen, lower, upper

    def _at_observed(self, X: Array) -> tuple[Array, Array, Array]:
        if self.sequence is None:
            deciding = self._deciding
            center = self._center_at(X)
            mean = deciding.mean(X, float(deciding.alphas[0])) + center
            lower, upper = deciding.interval(X, refine=False)
            return mean, lower + center, upper + center
        return self.sequence.mean(X), *self.bounds_within(X)

    def describe(self) -> str:
        """What is assumed of the objective at present."""
        if self.sequence is None or self.fixed is not None:
            return f"{len(self.kernel.active)} of {self.kernel.base.p} base kernels"
        believed = self.sequence.hypothesis
        return "nothing assumed (check noise_std)" if believed is None else str(believed)

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        sequence, fixed = (self._empty or self).sequence, self.fixed
        return {
            "kind": self.kind,
            "kernel": encode(self.kernel),
            "sequence": None if sequence is None else sequence.to_dict(),
            "noise_std": self.noise_std,
            "nu": None if fixed is None else _storable("nu", fixed.nu),
            "noise_var": None if fixed is None else _storable("noise_var", fixed.noise_var),
            "center": encode(storable_center(self.center)),
            "probes": self.probes,
            "stops": self.stops,
        }


@dataclass(frozen=True, eq=False)
class FixedWidth:
    """Explore with the posterior mean plus nu posterior standard deviations (Eqs. 3 and 11).

    It promises nothing by itself: confidence bounds and certificate are those of ``bounds``.

    Parameters
    ----------
    kernel : KernelSum
    nu : float or callable
        A number, or a function of the step t = 1, 2, ...
    noise_var : float or callable
        The regulariser of Eq. 3; Theorem 5.1 uses ``lambda t: 1 + 2 / t``.
    bounds : ConfidenceSequence, optional
        What bounds and certificates rest on.
    center : (n, d0) -> (n,), optional
        What the objective is expected to be; 0 by default.
    """

    kernel: KernelSum
    nu: Schedule
    noise_var: Schedule
    bounds: ConfidenceSequence | None = None
    center: Center | None = None

    def __post_init__(self) -> None:
        as_kernel("kernel", self.kernel)
        for name in ("nu", "noise_var"):
            object.__setattr__(self, name, checked_schedule(name, getattr(self, name)))

    def as_model(self, domain: Domain, *, minimize: bool, probes: int) -> CertifiedModel:
        """The model of a domain."""
        noise_std = 1.0 if callable(self.noise_var) else sqrt(float(self.noise_var))
        sequence = None
        center = negative(self.center) if minimize else self.center
        if self.bounds is not None:
            certified = CertifiedModel.of(self.bounds, domain, minimize=minimize, probes=probes)
            sequence, noise_std = certified.sequence, certified.noise_std
        elif probes:
            raise InputError(f"probes is {probes}, but there is no alarm to hear them; expected 0")
        fixed = FixedNu(no_observations(self.kernel), self.nu, self.noise_var, noise_std)
        return CertifiedModel(self.kernel, sequence, fixed, noise_std, center, probes)


def load_certified(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> CertifiedModel:
    """Inverse of `CertifiedModel.to_dict`; ``functions`` are kernels of the user's, by name."""
    kernel = decode(KernelSum, data["kernel"], "stored kernel", functions)
    noise_std = positive("noise_std", data["noise_std"])
    stored, sequence, fixed = data["center"], None, None
    where = "stored centre"
    center = None if stored is None else decode(KernelFunction, stored, where, functions)
    if data["sequence"] is not None:
        sequence = ConfidenceSequence.from_dict(data["sequence"], functions)
        kernel = sequence.kernel if data["nu"] is None else kernel
    if data["nu"] is not None:
        nu, noise_var = (checked_schedule(name, data[name]) for name in ("nu", "noise_var"))
        fixed = FixedNu(no_observations(kernel), nu, noise_var, noise_std)
    if sequence is None and fixed is None:
        raise InputError("stored model has neither a confidence sequence nor a nu")
    probes = int(as_number("probes", data.get("probes", 0), 0))
    stops = bool(data["stops"])
    return CertifiedModel(kernel, sequence, fixed, noise_std, center, probes, stops)


LOADERS[CertifiedModel.kind] = load_certified


def _storable(name: str, value: Any) -> Any:
    if callable(value):
        raise InputError(f"a {name} that is a function cannot be stored; store the record instead")
    return value


class Assumptions(Protocol):
    """What is assumed of the objective, and of other outputs."""

    def as_model(self, domain: Domain, *, minimize: bool, probes: int) -> Model:
        """The model of a domain, in the sign to be maximised."""
        ...


def GPUCB(
    sequence: ConfidenceSequence | Assumptions,
    domain: Domain | Space,
    *,
    rng: np.random.Generator | None = None,
    seed: int | None = None,
    acquisition: str | Acquisition = "ucb",
    minimize: bool = False,
    stop_at: float | None = None,
    probes: int = 0,
) -> Optimizer:
    """An `Optimizer` that maximises the upper confidence bound of a kernel's functions (Eq. 11).

    The next point maximises the upper bound. Points that were asked for and not observed yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.

    Parameters
    ----------
    sequence : ConfidenceSequence or FixedWidth, or another that makes a model
        What is assumed of the objective: usually a sequence of a learned kernel, before its first
        observation. With ``on_alarm="stop"``, `ask` raises `Alarm` after an alarm until
        `Optimizer.accept_alarm` is called, and then goes on like "widen". On a finite domain its
        sets are intersected over time.
    domain : Domain or Space
        `box`, `grid` or `candidates`, within the domain of the base kernels; or a space of named
        parameters, whose numeric inputs lie in [-1, 1].
    rng, seed : Generator or int, optional
        Draws the start of the search and breaks ties; by default always the same.
    acquisition : str or callable
        See `Optimizer`.
    minimize : bool
        True to minimise.
    stop_at : float, optional
        See `Optimizer`.
    probes : int
        How many points, after the first one, go where all base kernels know least, among those
        that may be asked for. GP-UCB alone looks where its kernel fits, and the alarm hardly
        ever notices a missing one. 4 to 8 make it notice, at the price of some regret
        (``docs/promises.md``).
    """
    domain = as_domain(domain)
    model: Model
    if isinstance(sequence, ConfidenceSequence):
        model = CertifiedModel.of(sequence, domain, minimize=minimize, probes=probes)
    elif hasattr(sequence, "as_model"):
        model = sequence.as_model(domain, minimize=minimize, probes=probes)
    else:
        raise InputError(
            f"sequence is a {type(sequence).__name__}; expected what is assumed of the objective, "
            "as mk.ConfidenceSequence(kernel, noise_std=..., norm_bound=...) states it"
        )
    return Optimizer(
        model,
        domain,
        rng=rng,
        seed=seed,
        acquisition=acquisition,
        minimize=minimize,
        stop_at=stop_at,
    )
