"""GP-UCB (Eq. 11) with an anytime confidence sequence, and the limits that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from metakel.confidence.radius import Centre, Method, NormBound
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.limits import Limit, Range, refuse_growing, shares
from metakel.optimize.model import Model
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.safe import SafeModel
from metakel.optimize.start_set import SafeStart, StartSet, VouchedPoints
from metakel.optimize.union import UnionModel
from metakel.optimize.upper_bound import Schedule
from metakel.search import Domain, SearchSpace
from metakel.space import Space


@dataclass(frozen=True, eq=False)
class Safety:
    """Limits, a start set, and shares of delta that add up.

    Parameters
    ----------
    range : Range
        Limits of the objective, in the sign of the values.
    limits : dict of Limit
    start : StartSet or None
    delta : float
        Of everything together.
    objective_share : float
        What the bounds of the objective get for deciding.
    limit_shares : dict
        What the bounds of the other outputs get.
    """

    range: Range
    limits: Mapping[str, Limit]
    start: StartSet | None
    delta: float
    objective_share: float
    limit_shares: Mapping[str, float]

    @classmethod
    def of(
        cls,
        domain: Domain,
        *,
        at_least: float | None,
        at_most: float | None,
        limits: Mapping[str, Limit] | None,
        start: Any,
        delta: float,
        delta_learning: float,
    ) -> Safety | None:
        """From the arguments of `GPUCB`; None where nothing is limited."""
        allowed, others = Range.of("GPUCB", at_least, at_most), dict(limits or {})
        for name, limit in others.items():
            if not isinstance(limit, Limit):
                raise InputError(f"limit {name!r} is a {type(limit).__name__}; expected mk.Limit")
        if not (allowed.bounded or others):
            if start is not None:
                raise InputError(
                    "start is given without a limit; expected at_least, at_most or limits too"
                )
            return None
        first = as_start_set(start, domain)
        spent = delta_learning + (0.0 if first is None else first.delta)
        return cls(allowed, others, first, delta, *shares(delta, spent, others))

    def check(self, *, nu: Any, method: str, norm_bound: Any, on_alarm: str) -> None:
        """Refuse options of `GPUCB` under which nothing can be promised."""
        if nu is not None:
            raise InputError("nu promises nothing, so it cannot keep limits; leave it out")
        if method != "dmm":
            raise InputError(f'method is {method!r}; limits need "dmm", which holds at all times')
        if on_alarm == "ignore":
            raise InputError(
                'on_alarm is "ignore", after which nothing holds; with limits expected "stop"'
            )
        refuse_growing(norm_bound)

    def around(
        self, objective: CertifiedModel, domain: Domain | None, *, on_alarm: str, maximize: bool
    ) -> SafeModel:
        """The safe model of an objective, which is in the sign to be maximised."""
        outputs = {}
        for name, limit in self.limits.items():
            options = limit.sequence_options(self.limit_shares[name])
            outputs[name] = CertifiedModel.make(limit.kernel, domain, on_alarm=on_alarm, **options)
        return SafeModel.around(
            objective,
            range=self.range if maximize else -self.range,
            outputs=outputs,
            ranges={name: limit.range for name, limit in self.limits.items()},
            start=self.start,
            delta=self.delta,
        )


def as_start_set(start: Any, domain: Domain) -> StartSet | None:
    """A start set as it is, or points of the domain that the user vouches for."""
    if start is None or isinstance(start, SafeStart):
        return start
    points = domain.encode(start, "start")
    if not len(points):
        raise InputError("start has no points; expected at least one that you vouch for")
    return VouchedPoints(points)


def GPUCB(
    kernel: KernelSum | Sequence[KernelSum],
    domain: Domain | Space,
    *,
    rng: np.random.Generator,
    noise_std: float,
    norm_bound: NormBound = None,
    delta: float = 0.1,
    delta_learning: float = 0.0,
    method: Method = "dmm",
    norm_of: Literal["truth", "kernel"] = "truth",
    on_alarm: Literal["stop", "widen", "raise", "ignore"] | None = None,
    full: KernelSum | Sequence[KernelSum] | None = None,
    watch_kernels: bool = False,
    probes: int = 0,
    rho: float | None = None,
    beta_min: float | None = None,
    recovery_error: float | None = None,
    nu: Schedule | None = None,
    noise_var: Schedule | None = None,
    centre: Centre | None = None,
    slack: float = 0.0,
    at_least: float | None = None,
    at_most: float | None = None,
    limits: Mapping[str, Limit] | None = None,
    start: StartSet | ArrayLike | Sequence[Mapping[str, Any]] | None = None,
    acquisition: str | Acquisition = "ucb",
    maximize: bool = True,
    stop_at: float | None = None,
    context: Domain | Space | None = None,
) -> Optimizer:
    """An `Optimizer` that maximises the upper confidence bound of a kernel's functions (Eq. 11).

    The next point maximises the upper bound. Points that were asked for and not observed yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.

    With ``at_least``, ``at_most`` or ``limits`` only points are asked for that respect all of them,
    with probability 1 - delta for all points together (``docs/guide/safe-search.md``). Where there
    is no such point, `ask` raises `NoSafePoint`.

    Parameters
    ----------
    kernel : KernelSum, or several
        Usually a learned one. Several are models of which one is right: those that do not fit are
        dropped, and the bounds are the union of the others' (`Optimizer.alive`).
    domain : Domain or Space
        `box`, `grid` or `candidates`, within the domain of the base kernels; or a space of named
        parameters, whose numeric inputs lie in [-1, 1].
    rng : Generator
        Draws the start of the search and breaks ties.
    noise_std : float
        Bound of the noise level sigma of an observation.
    norm_bound : float, callable or None
        B, see `ConfidenceSequence`. None asks for nothing: the features are explored first.
    delta, delta_learning : float
        Total probability of error, and the part of it that learning the kernel has spent. With
        limits the rest is shared by the objective and the limits, after the delta of a ``start``
        from past tasks; that includes what learning its kernel has spent.
    method, norm_of, full, watch_kernels, rho, beta_min, recovery_error
        See `ConfidenceSequence`.
    probes : int
        How many points, after the first one, go where all base kernels know least, among the safe
        ones where there are limits. GP-UCB alone looks where its kernel fits, and the alarm hardly
        ever notices a missing one. 4 to 8 make it notice, at the price of some regret
        (``docs/promises.md``).
    on_alarm : "stop", "widen", "raise" or "ignore", optional
        "stop": after an alarm `ask` raises `Alarm` until `Optimizer.accept_alarm` is called, and
        then continues like "widen". The others: see `ConfidenceSequence`. By default "stop" where
        there are limits, else "widen".
    nu : float or callable, optional
        Explore with the posterior mean plus nu posterior standard deviations (Eq. 3) instead of the
        confidence sequence; a number or a function of the step t = 1, 2, ... Confidence bounds and
        certificate are then available only if a norm bound is given, and do not depend on nu.
    noise_var : float or callable, optional
        The regulariser of Eq. 3 for ``nu`` and for the posterior, by default noise_std^2; Theorem
        5.1 uses ``lambda t: 1 + 2 / t``.
    centre, slack
        See `ConfidenceSequence`. The centre is in the units and the sign of the values.
    at_least, at_most : float, optional
        Limits of the objective itself.
    limits : dict, optional
        A `Limit` for every other output that is measured; `Optimizer.tell` then takes their
        values, as in ``tell(x, y, {"temperature": 71.3})``.
    start : SafeStart, or points
        Where to begin: a set from past tasks (`safe_start`), or points that you vouch for; with
        contexts, in every one of them.
    acquisition, maximize, stop_at
        See `Optimizer`. With limits it is maximised among the points that may be safe.
    context : Domain or Space, optional
        Where contexts come from: inputs that are given, not chosen (``docs/guide/contexts.md``).
        The kernel takes the inputs of the domain, then those of a context.
    """
    domain, context = _as_domain(domain), None if context is None else _as_domain(context)
    safety = Safety.of(
        domain,
        at_least=at_least,
        at_most=at_most,
        limits=limits,
        start=start,
        delta=delta,
        delta_learning=delta_learning,
    )
    if on_alarm is None:
        on_alarm = "widen" if safety is None else "stop"
    if safety is not None:
        safety.check(nu=nu, method=method, norm_bound=norm_bound, on_alarm=on_alarm)
    if centre is not None and not maximize:
        centre = _negative(centre)
    widen: Any = "widen" if on_alarm == "stop" else on_alarm
    finite = None if context is not None else domain  # where sets are intersected over time
    options: dict[str, Any] = {
        "noise_std": noise_std,
        "norm_bound": norm_bound,
        "nu": nu,
        "noise_var": noise_var,
        "delta": delta if safety is None else safety.objective_share + delta_learning,
        "delta_learning": delta_learning,
        "method": method,
        "norm_of": norm_of,
        "on_alarm": widen,
        "centre": centre,
        "slack": slack,
        "full": full,
        "watch_kernels": watch_kernels,
        "probes": probes,
        "rho": rho,
        "beta_min": beta_min,
        "recovery_error": recovery_error,
    }
    model: Model
    if not isinstance(kernel, KernelSum) and isinstance(kernel, Sequence):
        if safety is not None:
            raise InputError(
                "several kernels and limits; a limit holds only if the right kernel is known. Give "
                "one that contains all of them"
            )
        model = UnionModel.make(kernel, finite, **options)
    else:
        model = certified = CertifiedModel.make(kernel, finite, **options)
        if safety is not None:
            certified.stops = on_alarm == "stop"
            model = safety.around(certified, finite, on_alarm=widen, maximize=maximize)
    model.stops = on_alarm == "stop"
    return Optimizer(
        model,
        domain,
        rng=rng,
        acquisition=acquisition,
        maximize=maximize,
        stop_at=stop_at,
        context=context,
    )


def _as_domain(domain: Domain | Space) -> Domain:
    return SearchSpace(domain, domain) if isinstance(domain, Space) else domain


def _negative(centre: Centre) -> Centre:
    return -centre if isinstance(centre, KernelFunction) else lambda Z: -centre(Z)
