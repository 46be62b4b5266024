r"""How well f must fit the data: the mixture martingale, or a closed form, mean +- nu times the sd.

With whitened observations, :math:`\exp((\|f(X) - y\|^2 - \|g(X) - y\|^2)/2)` is a
supermartingale for every fixed g, under any way of choosing the points. Its average over
g ~ N(0, c K), and over scales c and kernels, is one too. By Ville's inequality, with probability
1 - delta and for all t together,

.. math:: \|f(X_t) - y_t\|^2 \le R_t^2 = 2\log\tfrac1\delta
          - 2\log\sum_i w_i \exp(-\tfrac12 y'(I + c_i K)^{-1} y - \tfrac12\log\det(I + c_i K)).

A small part of the mixture is another supermartingale, :math:`\exp(a S) (1 - 2a)^{t/2}` with
:math:`S = \|f(X_t) - y_t\|^2` and a < 1/2, which knows how large noise alone can be, whatever f is
(Theorem 11b of ``docs/theory.md``). R_t^2 is the root of the whole at 1 / delta.

The weights and scales are fixed before the first observation; any choice of them is valid. A scale
stands for a guess of the norm of f.

====================  ===============================================================  ===========
method                nu                                                               rho
====================  ===============================================================  ===========
"amm"                 sqrt(B^2 + (sigma^2/rho)(log det(I + K/rho) + 2 log(1/delta)))   any, fixed
"ay"                  B + (sigma/sqrt(rho)) sqrt(log det(I + K/rho) + 2 log(1/delta))  any, fixed
"paper-corrected"     "ay" with rho given; otherwise Lemma C.1 with the realised gain  1 + 2/t
"paper"               Theorem 5.1 as printed                                           1 + 2/t
"oracle"              Chowdhury and Gopalan with the true kernel, as Section 5 prints  1 + 2/t
====================  ===============================================================  ===========

B is the certified norm bound for the first three. "paper" and "oracle" are literal: "paper" is not
valid in general (it misses on an explicit counterexample), "oracle" holds if k(x, x) <= 1 and B
bounds the norm in the kernel given.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, sqrt

import numpy as np

from metakel._arrays import Array
from metakel.confidence.observations import Spectrum
from metakel.confidence.options import ClosedForm, ConfidenceOptions
from metakel.kernels.sum import KernelSum
from metakel.theory import (
    exploration,
    exploration_oracle,
    exploration_paper,
    exploration_vanilla,
    noise_var_paper,
)

# Scales of the mixture below the norm bound, a factor 2 apart.
SCALES = 8
# The norm where no bound is given, in units of the noise. Below, ten thousand values cannot
# distinguish f from 0; above, the radius is a millionth of f instead of a few sigma.
NORM_RANGE = (1e-2, 1e6)
# Scales above the norm bound for the alarm, in units of the noise. A scale s serves norms N far
# above it as well: of N^2 |phi|^2 / sigma^2, the evidence against the bound, it misses (N / s)^2.
MISSPECIFICATION_SCALES = np.array([1.0, 8.0, 64.0, 512.0])


def scales_below(norm_bound: float) -> Array:
    """(8,) scales B, B/2, ..., B/128."""
    return norm_bound * np.exp2(-np.arange(SCALES, dtype=np.float64))


def scales_between(low: float, high: float) -> Array:
    """Scales from ``low`` to ``high``, at most a factor 2 apart."""
    return np.geomspace(low, high, 1 + max(1, ceil(log(high / low, 2))))


def norm_scales(options: ConfidenceOptions, kernel: KernelSum, norm_bound: float) -> Array:
    """(S,) scales in the norm of ``kernel``, in which f is bounded by ``norm_bound``."""
    if options.dual.norm_scales is not None:
        return np.array(options.dual.norm_scales, dtype=np.float64)
    if callable(options.norm_bound):
        return scales_between(norm_bound / 2**7, norm_bound * 2**7)
    if options.norm_bound is not None:
        return scales_below(norm_bound)
    if options.dual.norm_range is not None:
        return scales_between(*options.dual.norm_range)
    return scales_between(*(_noise_norm(options, kernel) * np.array(NORM_RANGE)))


def misspecification_scales(
    options: ConfidenceOptions, kernel: KernelSum, norm_scales: Array
) -> Array:
    """(W,) scales above all others, at which f would stand out of the noise.

    If even B sqrt(k) is small against the noise, no scale up to B explains values of many sigma
    better than f = 0 does: the mixture has no evidence against a wrong bound, and there would be
    no alarm. These scales provide it.
    """
    if options.dual.norm_scales is not None or not options.dual.misspecification_weight:
        return np.zeros(0)
    scales = _noise_norm(options, kernel) * MISSPECIFICATION_SCALES
    return np.asarray(scales[scales > norm_scales.max()])


def _noise_norm(options: ConfidenceOptions, kernel: KernelSum) -> float:
    """The norm of a function about as large as the noise, for base kernels about as large as 1."""
    return options.noise_std / sqrt(kernel.min_weight or 1.0)


def log_evidence(values: Array, squared_targets: Array, rest: float, norm_scales: Array) -> Array:
    """(S,) exponents of the mixture, one per scale c = norm_scale^2.

    Parameters
    ----------
    values, squared_targets : (r,) arrays
        Eigenvalues of K and the squared coordinates of y in its eigenvectors.
    rest : float
        Squared norm of what is left of y.
    norm_scales : (S,) array
    """
    grown = norm_scales[:, None] ** 2 * values  # (S, r)
    fit = rest + (squared_targets / (1 + grown)).sum(axis=1)
    return np.asarray(-0.5 * fit - 0.5 * np.log1p(grown).sum(axis=1))


def log_weights(scales: int, misspecification_scales: int, weight: float) -> Array:
    """(S + W,) logarithms of the weights of the scales of one kernel, which add up to 1.

    The misspecification scales have ``weight`` together, which makes R_t^2 larger by at most
    2 log(1 / (1 - weight)) than the mixture of the other scales alone.
    """
    if not misspecification_scales:
        return np.full(scales, -log(scales))
    counts = [scales, misspecification_scales]
    each = [(1 - weight) / scales, weight / misspecification_scales]
    return np.asarray(np.log(np.repeat(each, counts)))


def log_mixture(
    evidences: list[Array],
    weights: list[Array] | None = None,
    shares: Sequence[float] | None = None,
) -> float:
    """Logarithm of the mixture over kernels and scales; never positive.

    Parameters
    ----------
    evidences : list of (S,) arrays
        One for every kernel.
    weights : list of (S,) arrays, optional
        Logarithms of the weights of the scales, for every kernel; by default all equal.
    shares : sequence of float, optional
        Weights of the kernels, which add up to 1; by default all equal.
    """
    if weights is None:
        weights = [log_weights(len(e), 0, 0.0) for e in evidences]
    if shares is None:
        shares = [1 / len(evidences)] * len(evidences)
    terms = np.concatenate(
        [e + w + log(share) for e, w, share in zip(evidences, weights, shares, strict=True)]
    )
    return _log_sum(terms)


def _log_sum(terms: Array) -> float:
    top = float(terms.max())
    return top + log(float(np.exp(terms - top).sum()))


# Tilts a of the chi-square supermartingale, fixed in advance.
TILTS = np.array([0.04, 0.15, 0.33])
TILT_SHARES = np.array([0.1, 0.45, 0.45])
STEPS, ENOUGH = 60, 1e-13


def squared_radius(mixture: float, delta: float, *, t: int = 0, noise_weight: float = 0.0) -> float:
    r"""R_t^2 after t observations: the root of the supermartingale in ||f(X) - y||^2 at 1 / delta.

    With weight 1 - ``noise_weight`` it is :math:`\exp(S/2)` times the mixture over kernels and
    scales, with the rest an average over tilts of :math:`\exp(a S) (1 - 2a)^{t/2}`. Alone, the
    first gives R_t^2 = 2 log(1 / delta) - 2 ``mixture``, which exceeds that of a single kernel by
    at most 2 log(1 / share) (Theorem 11 of ``docs/theory.md``); the second adds at most
    2 log(1 / (1 - noise_weight)) to that.
    """
    first = 2 * log(1 / delta) - 2 * mixture
    if not noise_weight:
        return first
    slopes = np.append(0.5, TILTS)
    heights = np.append(
        mixture + log(1 - noise_weight),
        np.log(noise_weight * TILT_SHARES) + t / 2 * np.log1p(-2 * TILTS),
    )
    level = log(1 / delta)
    # Every single term gives an upper bound. The logarithm of the sum is convex and increasing in
    # S, so that Newton's steps from above stay above its root.
    S = float(((level - heights) / slopes).min())
    for _ in range(STEPS):
        terms = heights + slopes * S
        total = _log_sum(terms)
        step = (total - level) / float(slopes @ np.exp(terms - total))
        S -= step
        if step <= ENOUGH * (1 + abs(S)):
            break
    return S


def regularizer_and_nu(
    options: ConfidenceOptions, spectrum: Spectrum, *, t: int, norm_bound: float
) -> tuple[float, float]:
    """rho, in units of the squared outputs, and nu after ``t`` observations.

    Parameters
    ----------
    options : ConfidenceOptions
    spectrum : Spectrum
        The t observations, whitened with ``options.noise_std``.
    t : int
        Theorem 5.1 writes t for the step that comes next, which is t + 1 here.
    norm_bound : float
        The certified bound in the norm of the kernel; "paper" and "oracle" take B itself.
    """
    sigma, delta, form = options.noise_std, options.delta_deciding, options.method
    assert isinstance(form, ClosedForm)
    step = noise_var_paper(t=t + 1)
    level = {"noise_std": sigma, "delta": delta}
    if form.name in ("paper", "oracle"):
        B, dim = options.norm_at(t), spectrum.kernel.dim
        if form.name == "oracle":
            return step, exploration_oracle(norm_bound=B, dim=dim, t=t + 1, **level)
        assert form.beta_min is not None
        assert form.recovery_error is not None
        recovered = {"recovery_error": form.recovery_error, "beta_min": form.beta_min}
        return step, exploration_paper(norm_bound=B, dim=dim, t=t + 1, **level, **recovered)
    if form.name == "paper-corrected" and form.rho is None:
        gain = spectrum.log_det(step / sigma**2) / 2
        return step, exploration_vanilla(norm_bound=norm_bound, information_gain=gain, **level)
    rho = sigma**2 if form.rho is None else form.rho
    log_det = spectrum.log_det(rho / sigma**2)
    if form.name == "amm":
        return rho, sqrt(norm_bound**2 + sigma**2 / rho * (log_det + 2 * log(1 / delta)))
    return rho, exploration(
        norm_bound=norm_bound,
        smallest_weight=1.0,  # norm_bound is certified already
        information_gain=log_det / 2,
        noise_var=rho,
        **level,
    )
