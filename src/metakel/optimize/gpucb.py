"""GP-UCB (Eq. 11) with an anytime confidence sequence, and the limits that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from metakel.confidence.radius import Centre, Method, NormBound
from metakel.errors import InputError
from metakel.kernels.sum import KernelFunction, KernelSum
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.limits import Limit, Range, StartSet, as_start_set
from metakel.optimize.model import Model
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.safe import SafeModel
from metakel.optimize.upper_bound import Schedule
from metakel.search import Domain, SearchSpace
from metakel.space import Space


def GPUCB(
    kernel: KernelSum,
    domain: Domain | Space,
    *,
    rng: np.random.Generator | None = None,
    seed: int | None = None,
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
    minimize: bool = False,
    stop_at: float | None = None,
) -> Optimizer:
    """An `Optimizer` that maximises the upper confidence bound of a kernel's functions (Eq. 11).

    The next point maximises the upper bound. Points that were asked for and not observed yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.

    With ``at_least``, ``at_most`` or ``limits`` only points are asked for that respect all of them,
    with probability 1 - delta for all points together (``docs/guide/safe-search.md``). Where there
    is no such point, `ask` raises `NoSafePoint`.

    Parameters
    ----------
    kernel : KernelSum
        Usually a learned one.
    domain : Domain or Space
        `box`, `grid` or `candidates`, within the domain of the base kernels; or a space of named
        parameters, whose numeric inputs lie in [-1, 1].
    rng, seed : Generator or int, optional
        Draws the start of the search and breaks ties; by default always the same.
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
        Where to begin: a set from past tasks (`safe_start`), or points that you vouch for.
    acquisition, minimize, stop_at
        See `Optimizer`. With limits it is maximised among the points that may be safe.
    """
    domain = _as_domain(domain)
    limited = bool(limits) or at_least is not None or at_most is not None
    if start is not None and not limited:
        raise InputError("start is given without a limit; expected at_least, at_most or limits too")
    if on_alarm is None:
        on_alarm = "stop" if limited else "widen"
    if centre is not None and minimize:
        centre = _negative(centre)
    options: dict[str, Any] = {
        "noise_std": noise_std,
        "norm_bound": norm_bound,
        "nu": nu,
        "noise_var": noise_var,
        "delta": delta,
        "delta_learning": delta_learning,
        "method": method,
        "norm_of": norm_of,
        "on_alarm": "widen" if on_alarm == "stop" else on_alarm,
        "centre": centre,
        "slack": slack,
        "full": full,
        "watch_kernels": watch_kernels,
        "probes": probes,
        "stops": on_alarm == "stop",
        "rho": rho,
        "beta_min": beta_min,
        "recovery_error": recovery_error,
    }
    model: Model
    if limited:
        allowed = Range.of("GPUCB", at_least, at_most)
        model = SafeModel.within(
            kernel,
            domain,
            range=-allowed if minimize else allowed,
            limits=dict(limits or {}),
            start=as_start_set(start, domain),
            **options,
        )
    else:
        model = CertifiedModel.make(kernel, domain, **options)
    return Optimizer(
        model,
        domain,
        rng=rng,
        seed=seed,
        acquisition=acquisition,
        minimize=minimize,
        stop_at=stop_at,
    )


def _as_domain(domain: Domain | Space) -> Domain:
    if isinstance(domain, Space):
        return SearchSpace(domain, domain)
    if not isinstance(domain, Domain):
        raise InputError(
            f"domain is a {type(domain).__name__}; use mk.box, mk.grid or mk.candidates, or a Space"
        )
    return domain


def _negative(centre: Centre) -> Centre:
    return -centre if isinstance(centre, KernelFunction) else lambda Z: -centre(Z)
