r"""Options of a confidence sequence, and how well f must then fit the data.

That is the mixture martingale, or a closed form: mean +- nu times the sd.

With whitened observations, :math:`\exp((\|f(X) - y\|^2 - \|g(X) - y\|^2)/2)` is a
supermartingale for every fixed g, under any way of choosing the points. Its average over
g ~ N(0, c K), and over scales c and kernels, is one too. By Ville's inequality, with probability
1 - delta and for all t together,

.. math:: \|f(X_t) - y_t\|^2 \le R_t^2 = 2\log\tfrac1\delta
          - 2\log\sum_i w_i \exp(-\tfrac12 y'(I + c_i K)^{-1} y - \tfrac12\log\det(I + c_i K)).

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt
from typing import Literal, get_args

import numpy as np

from metakel._arrays import Array, as_number, check_choice, positive
from metakel.confidence.observations import Spectrum
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelSum
from metakel.theory import (
    exploration,
    exploration_oracle,
    exploration_paper,
    exploration_vanilla,
    noise_var_paper,
)

# (n, d0) points -> (n,) values
Centre = Callable[[Array], Array]


def centre_at(centre: Centre, Z: Array) -> Array:
    """(n,) values of a centre at ``Z`` (n, d0), checked."""
    values = np.asarray(centre(Z), dtype=np.float64)
    if values.shape != (len(Z),):
        raise ShapeError(
            f"centre returned shape {values.shape} for {len(Z)} points; expected ({len(Z)},)"
        )
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise InputError(f"centre is {values[bad]} at {Z[bad].tolist()}; expected finite numbers")
    return values


Method = Literal["dmm", "amm", "ay", "paper", "paper-corrected", "oracle"]
NormBound = float | Callable[[int], float] | None


@dataclass(frozen=True)
class ConfidenceOptions:
    """The arguments of `ConfidenceSequence` other than kernels and points; see there."""

    noise_std: float
    norm_bound: NormBound
    delta: float
    delta_learning: float
    method: Method
    norm_of: Literal["truth", "kernel"]
    on_alarm: Literal["widen", "stop", "raise", "ignore"]
    norm_scales: Sequence[float] | None
    norm_range: tuple[float, float] | None
    misspecification_weight: float
    rho: float | None
    beta_min: float | None
    recovery_error: float | None
    slack: float = 0.0
    watch_kernels: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        check_choice("norm_of", self.norm_of, ("truth", "kernel"))
        check_choice("on_alarm", self.on_alarm, ("widen", "stop", "raise", "ignore"))
        for name in ("noise_std", "rho", "beta_min"):
            if name == "noise_std" or getattr(self, name) is not None:
                self._set(name, positive(name, getattr(self, name)))
        for name in ("delta", "delta_learning"):
            self._set(name, as_number(name, getattr(self, name)))
        self._check_delta()
        weight = as_number("misspecification_weight", self.misspecification_weight, 0, 1)
        self._set("misspecification_weight", weight)
        if self.norm_range is not None and not 0 < self.norm_range[0] < self.norm_range[1] < inf:
            raise InputError(f"norm_range is {self.norm_range}; expected 0 < low < high")
        for scale in self.norm_scales or ():
            positive("norm_scales", scale)
        if self.norm_scales is not None and not len(self.norm_scales):
            raise InputError("norm_scales is empty; expected at least one positive number")
        self._set("slack", as_number("slack", self.slack, 0))
        if self.slack and self.method != "dmm":
            raise InputError(f'slack is {self.slack:g}, but method is {self.method!r}; use "dmm"')
        if self.watch_kernels and self.method != "dmm":
            raise InputError(f'watch_kernels is True, but {self.method!r} has no alarm; use "dmm"')
        self._check_norm_bound()
        self._check_paper()

    def _check_delta(self) -> None:
        if 0 <= self.delta_learning < self.delta < 1:
            return
        found = (
            f"delta is {self.delta:g}, of which {self.delta_learning:g} was spent on learning the "
            "kernel; expected 0 <= delta_learning < delta < 1"
        )
        if self.delta_learning == 1:
            found += (
                ". 1 means that lambda was chosen by hand, so that nothing is guaranteed for the "
                "learned kernel: learn it without lam, or say with delta_learning=0 that you trust "
                "it"
            )
        elif 0 < self.delta <= self.delta_learning < 1:
            found += (
                f". Give a delta above {self.delta_learning:g}, or learn with a smaller one: "
                f"learn_kernel(..., delta={min(self.delta, 1.0) / 2:g})"
            )
        raise InputError(found)

    def _check_norm_bound(self) -> None:
        if self.method != "dmm" and (self.norm_bound is None or callable(self.norm_bound)):
            raise InputError(
                f'method {self.method!r} needs a number as norm_bound; only "dmm" works without '
                "one, or with one that grows over time"
            )
        if self.norm_bound is not None:
            first = self.norm_at(0)
            if not callable(self.norm_bound):
                self._set("norm_bound", first)

    def _check_paper(self) -> None:
        if self.method == "paper" and (self.beta_min is None or self.recovery_error is None):
            raise InputError(
                'method "paper" is Theorem 5.1 as printed: it needs beta_min (c_1) and '
                'recovery_error (epsilon). Neither can be observed; "dmm" needs neither'
            )
        if self.recovery_error is not None:
            self._set("recovery_error", as_number("recovery_error", self.recovery_error, 0))

    def _set(self, name: str, value: float) -> None:
        """Replace a NumPy number by one of Python, which JSON can store."""
        object.__setattr__(self, name, value)

    def check_kernel(self, kernel: KernelSum) -> None:
        """Raise if the method needs features that the kernel does not have."""
        if kernel.finite:
            return
        if self.norm_bound is None:
            raise InputError(
                "norm_bound is None, but the kernel has base kernels without features, whose "
                "functions are not determined by any number of values; give a norm_bound"
            )
        if self.method in ("paper", "oracle"):
            raise InputError(
                f"method {self.method!r} uses the number of features of the kernel, which has "
                'base kernels without any; use "dmm", "amm", "ay" or "paper-corrected"'
            )

    def check_noise(self, noise_std: Array) -> None:
        """Raise if the method knows one noise level and observations (n,) have another."""
        literal = self.method in ("paper", "oracle", "paper-corrected")
        if literal and (noise_std != self.noise_std).any():
            raise InputError(
                f"method {self.method!r} knows one noise level, {self.noise_std:g}; "
                'use "dmm", "amm" or "ay" where it differs by observation'
            )

    @property
    def delta_deciding(self) -> float:
        """The part of delta that is left for the intervals themselves."""
        return self.delta - self.delta_learning

    def norm_at(self, t: int) -> float:
        """The norm bound after t observations; inf where there is none."""
        if self.norm_bound is None:
            return inf
        if callable(self.norm_bound):
            return positive(f"norm_bound({t})", self.norm_bound(t))
        return positive("norm_bound", self.norm_bound)


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
    if options.norm_scales is not None:
        return np.array(options.norm_scales, dtype=np.float64)
    if callable(options.norm_bound):
        return scales_between(norm_bound / 2**7, norm_bound * 2**7)
    if options.norm_bound is not None:
        return scales_below(norm_bound)
    if options.norm_range is not None:
        return scales_between(*options.norm_range)
    return scales_between(*(_noise_norm(options, kernel) * np.array(NORM_RANGE)))


def misspecification_scales(
    options: ConfidenceOptions, kernel: KernelSum, norm_scales: Array
) -> Array:
    """(W,) scales above all others, at which f would stand out of the noise.

    If even B sqrt(k) is small against the noise, no scale up to B explains values of many sigma
    better than f = 0 does: the mixture has no evidence against a wrong bound, and there would be
    no alarm. These scales provide it.
    """
    if options.norm_scales is not None or not options.misspecification_weight:
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


def squared_radius(
    evidences: list[Array],
    delta: float,
    weights: list[Array] | None = None,
    shares: Sequence[float] | None = None,
) -> float:
    """R_t^2 of the mixture over kernels and scales.

    It exceeds that of a single kernel by at most 2 log(1 / share) (Promise 1 of
    ``docs/promises.md``).

    Parameters
    ----------
    evidences : list of (S,) arrays
        One for every kernel.
    delta : float
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
    top = terms.max()
    return float(2 * log(1 / delta) - 2 * (top + np.log(np.exp(terms - top).sum())))


def regulariser_and_nu(
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
    sigma, delta = options.noise_std, options.delta_deciding
    step = noise_var_paper(t=t + 1)
    level = {"noise_std": sigma, "delta": delta}
    if options.method in ("paper", "oracle"):
        B, dim = options.norm_at(t), spectrum.kernel.dim
        if options.method == "oracle":
            return step, exploration_oracle(norm_bound=B, dim=dim, t=t + 1, **level)
        assert options.beta_min is not None
        assert options.recovery_error is not None
        recovered = {"recovery_error": options.recovery_error, "beta_min": options.beta_min}
        return step, exploration_paper(norm_bound=B, dim=dim, t=t + 1, **level, **recovered)
    if options.method == "paper-corrected" and options.rho is None:
        gain = spectrum.log_det(step / sigma**2) / 2
        return step, exploration_vanilla(norm_bound=norm_bound, information_gain=gain, **level)
    rho = sigma**2 if options.rho is None else options.rho
    log_det = spectrum.log_det(rho / sigma**2)
    if options.method == "amm":
        return rho, sqrt(norm_bound**2 + sigma**2 / rho * (log_det + 2 * log(1 / delta)))
    return rho, exploration(
        norm_bound=norm_bound,
        smallest_weight=1.0,  # norm_bound is certified already
        information_gain=log_det / 2,
        noise_var=rho,
        **level,
    )
