"""GP-UCB (Eq. 11) with an anytime confidence sequence."""

from __future__ import annotations

from typing import Literal

import numpy as np

from metakel.confidence.options import Method, NormBound
from metakel.kernels.sum import KernelSum
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.certified import CertifiedModel, Schedule
from metakel.optimize.optimizer import Optimizer
from metakel.search import Domain, SearchSpace
from metakel.space import Space


def GPUCB(
    kernel: KernelSum,
    domain: Domain | Space,
    *,
    rng: np.random.Generator,
    noise_std: float,
    norm_bound: NormBound = None,
    delta: float = 0.1,
    delta_learning: float = 0.0,
    method: Method = "dmm",
    norm_of: Literal["truth", "kernel"] = "truth",
    on_alarm: Literal["widen", "raise", "ignore"] = "widen",
    full: KernelSum | None = None,
    rho: float | None = None,
    beta_min: float | None = None,
    recovery_error: float | None = None,
    nu: Schedule | None = None,
    noise_var: Schedule | None = None,
    acquisition: str | Acquisition = "ucb",
    maximize: bool = True,
    stop_at: float | None = None,
    context: Domain | Space | None = None,
) -> Optimizer:
    """An `Optimizer` that maximises the upper confidence bound of a kernel's functions (Eq. 11).

    The next point maximises the upper bound. Points that were asked for and not observed yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.

    Parameters
    ----------
    kernel : KernelSum
        Usually a learned one.
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
        Total probability of error, and the part of it that learning the kernel has spent.
    method, norm_of, on_alarm, full, rho, beta_min, recovery_error
        See `ConfidenceSequence`.
    nu : float or callable, optional
        Explore with the posterior mean plus nu posterior standard deviations (Eq. 3) instead of the
        confidence sequence; a number or a function of the step t = 1, 2, ... Confidence bounds and
        certificate are then available only if a norm bound is given, and do not depend on nu.
    noise_var : float or callable, optional
        The regulariser of Eq. 3 for ``nu`` and for the posterior, by default noise_std^2; Theorem
        5.1 uses ``lambda t: 1 + 2 / t``.
    acquisition, maximize, stop_at
        See `Optimizer`.
    context : Domain or Space, optional
        Where contexts come from: inputs that are given, not chosen (``docs/guide/contexts.md``).
        The kernel takes the inputs of the domain, then those of a context.
    """
    domain, context = _as_domain(domain), None if context is None else _as_domain(context)
    model = CertifiedModel.make(
        kernel,
        None if context is not None else domain,
        noise_std=noise_std,
        norm_bound=norm_bound,
        nu=nu,
        noise_var=noise_var,
        delta=delta,
        delta_learning=delta_learning,
        method=method,
        norm_of=norm_of,
        on_alarm=on_alarm,
        full=full,
        rho=rho,
        beta_min=beta_min,
        recovery_error=recovery_error,
    )
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
