"""Lambda rules from simulated noise, and the pivotal rule for noise of unknown size."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log, sqrt

import numpy as np

from metakel._arrays import Array, check_generator
from metakel.errors import InputError
from metakel.learn.rules.spectrum import (
    NoiseProblem,
    check_delta,
    chernoff_energy,
    nonzero,
    spectrum_of,
)


def monte_carlo(
    problem: NoiseProblem,
    *,
    noise_std: float,
    delta: float,
    rng: np.random.Generator,
    draws: int = 999,
) -> Array:
    r"""For Gaussian noise and points fixed in advance: the event A simulated (Lemma B.1).

    :math:`\lambda_j = 4 \sigma w_j q / N` where :math:`w_j^2` is the trace of the group and q the
    order statistic number ceil((1 - delta)(draws + 1)) of
    :math:`\max_j \|(\Phi^T g)^{(j)}\| / w_j`. The noise in the data and the draws g are
    exchangeable, so A has probability at least 1 - delta at any number of draws, not only in the
    limit. It fails when the points were chosen while looking at the values.
    """
    check_delta(delta)
    scale = np.sqrt(spectrum_of(problem).trace)
    quantile = _simulated_quantile(problem, scale, delta, rng, draws, lambda g: 1.0)
    return nonzero(4 * noise_std / problem.total * quantile * scale)


def pivotal_lambda(
    problem: NoiseProblem, *, delta: float, rng: np.random.Generator | None = None, draws: int = 999
) -> Array:
    r"""Lambda of the group square-root lasso, for Gaussian noise of unknown size.

    The problem is :math:`\|y - \Phi b\| / \sqrt N + \sum_j \lambda'_j \|b^{(j)}\|`, and the event
    to hold :math:`\|(\Phi^T \varepsilon)^{(j)}\| / (\sqrt N \|\varepsilon\|) \le \lambda'_j / 2`,
    in which the noise level cancels (Bunea, Lederer and She, 2013).

    With a Generator, :math:`\lambda'_j = 2 w_j q`, q the simulated quantile as in `monte_carlo`.
    Without one, the bound of `chernoff` on the numerator of each group and the lower tail of
    Laurent and Massart (2000) on :math:`\|\varepsilon\|`, at delta / (p + 1) each.
    """
    check_delta(delta)
    v = spectrum_of(problem)
    weights = problem.task_weights
    if rng is not None:

        def root_total(g: list[Array]) -> float:
            return sqrt(
                problem.total * sum(w * float(r @ r) for w, r in zip(weights, g, strict=True))
            )

        scale = np.sqrt(v.trace)
        quantile = _simulated_quantile(problem, scale, delta, rng, draws, root_total)
        return nonzero(2 * quantile * scale)
    x = log((problem.p + 1) / delta)
    floor = problem.total - 2 * sqrt(float(weights**2 @ problem.sizes) * x)
    if floor <= 0:
        raise InputError(
            f"{problem.total} observations are too few to bound unknown noise at delta = {delta} "
            f"for {problem.p} kernels; pass rng= for the simulated rule, or noise_std"
        )
    return nonzero(2 * np.sqrt(chernoff_energy(v, x) / (problem.total * floor)))


def _simulated_quantile(
    problem: NoiseProblem,
    scale: Array,
    delta: float,
    rng: np.random.Generator,
    draws: int,
    denominator: Callable[[list[Array]], float],
) -> float:
    """Order statistic of max_j ||(Phi' g)^(j)|| / (scale_j denominator(g)), g standard normal."""
    check_generator(rng)
    rank = ceil((1 - delta) * (draws + 1) - 1e-12)
    if rank > draws:
        raise InputError(
            f"{draws} draws cannot reach level {delta}; expected at least {ceil(1 / delta - 1)}"
        )
    used = scale > 0
    if not used.any():
        return 1.0
    splits = np.cumsum(problem.sizes)[:-1]
    maxima = np.empty(draws)
    for i in range(draws):
        g = np.split(rng.standard_normal(problem.total), splits)
        energies = problem.energies(g)[used]
        maxima[i] = np.sqrt((energies / scale[used] ** 2).max()) / denominator(g)
    return float(np.partition(maxima, rank - 1)[rank - 1])
