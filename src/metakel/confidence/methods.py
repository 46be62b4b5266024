r"""What a confidence sequence assumes, its methods, and how well f must fit the data by them.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, inf, log, sqrt
from typing import Any, Literal, Protocol, get_args

import numpy as np

from metakel._arrays import Array, as_number, check_choice, positive
from metakel.confidence.set import Spectrum
from metakel.errors import InputError, ShapeError
from metakel.kernels.sum import KernelFunction, KernelSum
from metakel.theory import (
    exploration,
    exploration_oracle,
    exploration_paper,
    exploration_vanilla,
    noise_var_paper,
)

# (n, d0) points -> (n,) values
Center = Callable[[Array], Array]


def center_at(center: Center, Z: Array) -> Array:
    """(n,) values of a centre at ``Z`` (n, d0), checked."""
    values = np.asarray(center(Z), dtype=np.float64)
    if values.shape != (len(Z),):
        raise ShapeError(
            f"centre returned shape {values.shape} for {len(Z)} points; expected ({len(Z)},)"
        )
    if not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise InputError(f"center is {values[bad]} at {Z[bad].tolist()}; expected finite numbers")
    return values


def negative(center: Center | None) -> Center | None:
    """Minus the function."""
    if center is None:
        return None
    return -center if isinstance(center, KernelFunction) else lambda Z: -center(Z)


def storable_center(center: Center | None) -> KernelFunction | None:
    """The centre, unless it is a function of the user's own."""
    if center is None or isinstance(center, KernelFunction):
        return center
    raise InputError(
        "a centre that is a function of your own cannot be stored; expected a KernelFunction, or "
        "store the record instead"
    )


ClosedFormName = Literal["amm", "ay", "paper-corrected", "paper", "oracle"]
MethodName = Literal["dmm", "amm", "ay", "paper-corrected", "paper", "oracle"]
NormBound = float | Callable[[int], float] | None
NormOf = Literal["truth", "kernel", "all"]
OnAlarm = Literal["widen", "stop", "raise", "ignore"]


@dataclass(frozen=True)
class DMM:
    """The default method: every function that fits the data and has a small norm.

    How well it must fit is decided by a mixture over kernels and guesses of the norm, which are
    fixed in advance. All choices are valid; they change how wide the intervals are, and what the
    alarm notices.

    Parameters
    ----------
    norm_scales : sequence of float, optional
        Guesses of the norm of f in the norm of the kernel. By default B, B/2, ..., B/128; without a
        B from a hundredth to a million times the noise (over the root of the smallest weight), so
        that units do not matter.
    misspecification_weight : float
        Weight in the mixture of guesses above all of these, at which f would stand out of the noise
        (1, 8, 64 and 512 times it). The alarm needs them: without them it would not notice a B
        that is small against the noise, however wrong. 0.01 makes R_t^2 larger by 0.02. With
        ``norm_scales`` there are none.
    watch_kernels : bool
        Give a quarter of the mixture to kernels with one base kernel more, so that the alarm
        notices a single missing one earlier. The kernel keeps its half, so R_t^2 grows no further.
        Every `tell` then takes one small decomposition for each base kernel that is missing.
    noise_weight : float
        Weight in the mixture of the chi-square supermartingale, which bounds the distance of f from
        the values by what noise alone can have, whatever f is. It narrows intervals where f has
        many features, and lets the alarm notice noise that is larger than was said. 0.02 makes R_t
        larger by at most half a per cent where delta is at most 0.1.
    remember : int
        At most how many past sets `interval` intersects with at points that were not named in
        advance: the previous one and the first ones past the powers of 2. It narrows the intervals
        by a few per cent.
    """

    norm_scales: tuple[float, ...] | None = None
    misspecification_weight: float = 0.01
    watch_kernels: bool = False
    noise_weight: float = 0.02
    remember: int = 4

    def __post_init__(self) -> None:
        for name, below in (("misspecification_weight", 1.0), ("noise_weight", 0.5)):
            _set(self, name, as_number(name, getattr(self, name), 0, below))
        if self.norm_scales is not None:
            scales = tuple(positive("norm_scales", scale) for scale in self.norm_scales)
            if not scales:
                raise InputError("norm_scales is empty; expected at least one positive number")
            _set(self, "norm_scales", scales)
        if self.remember < 0:
            raise InputError(f"remember is {self.remember}; expected an integer >= 0")

    @property
    def name(self) -> MethodName:
        """ "dmm"."""
        return "dmm"


@dataclass(frozen=True)
class ClosedForm:
    """A closed form, mean plus and minus nu standard deviations, of the present time alone.

    Parameters
    ----------
    name : "amm", "ay", "paper-corrected", "paper" or "oracle"
        See `metakel.confidence.methods`.
    rho : float, optional
        Regulariser of "amm", "ay" and "paper-corrected", by default noise_std^2 (1 + 2/t for
        "paper-corrected"). If noise differs by observation, that of observation i is
        rho (noise_std_i / noise_std)^2.
    beta_min, recovery_error : float, optional
        c_1 and epsilon of Theorem 5.1, for "paper" only; the kernel is then taken as it is given.
    """

    name: ClosedFormName
    rho: float | None = None
    beta_min: float | None = None
    recovery_error: float | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.name, get_args(ClosedFormName))
        for name in ("rho", "beta_min"):
            if getattr(self, name) is not None:
                _set(self, name, positive(name, getattr(self, name)))
        if self.name == "paper" and (self.beta_min is None or self.recovery_error is None):
            raise InputError(
                'method "paper" is Theorem 5.1 as printed: it needs beta_min (c_1) and '
                "recovery_error (epsilon), ClosedForm('paper', beta_min=..., recovery_error=...). "
                'Neither can be observed; "dmm" needs neither'
            )
        if self.recovery_error is not None:
            _set(self, "recovery_error", as_number("recovery_error", self.recovery_error, 0))


def as_method(method: MethodName | DMM | ClosedForm) -> DMM | ClosedForm:
    """A method by its name, or with options of its own."""
    if isinstance(method, DMM | ClosedForm):
        return method
    check_choice("method", method, get_args(MethodName))
    return DMM() if method == "dmm" else ClosedForm(method)


@dataclass(frozen=True)
class ConfidenceOptions:
    """The arguments of `ConfidenceSequence` other than kernels and points; see there."""

    noise_std: float
    norm_bound: NormBound
    delta: float
    delta_learning: float
    method: DMM | ClosedForm
    norm_of: NormOf
    on_alarm: OnAlarm
    slack: float = 0.0

    def __post_init__(self) -> None:
        check_choice("norm_of", self.norm_of, get_args(NormOf))
        check_choice("on_alarm", self.on_alarm, get_args(OnAlarm))
        _set(self, "noise_std", positive("noise_std", self.noise_std))
        for name, low in (("delta", -inf), ("delta_learning", -inf), ("slack", 0.0)):
            _set(self, name, as_number(name, getattr(self, name), low))
        self._check_delta()
        if self.slack and self.name != "dmm":
            raise InputError(f'slack is {self.slack:g}, but method is {self.name!r}; use "dmm"')
        if self.name != "dmm" and (self.norm_bound is None or callable(self.norm_bound)):
            raise InputError(
                f'method {self.name!r} needs a number as norm_bound; only "dmm" works without '
                "one, or with one that grows over time"
            )
        first = self.norm_at(0)  # refused where it is no positive number
        if not (self.norm_bound is None or callable(self.norm_bound)):
            _set(self, "norm_bound", first)

    @property
    def name(self) -> MethodName:
        """Of the method."""
        return self.method.name

    @property
    def dual(self) -> DMM:
        """The options of "dmm"; its defaults for closed forms, which use none of them."""
        return self.method if isinstance(self.method, DMM) else DMM()

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

    def check_kernel(self, kernel: KernelSum) -> None:
        """Raise if the method needs features that the kernel does not have."""
        if kernel.finite:
            return
        if self.norm_bound is None:
            raise InputError(
                "norm_bound is None, but the kernel has base kernels without features, whose "
                "functions are not determined by any number of values; give a norm_bound"
            )
        if self.name in ("paper", "oracle"):
            raise InputError(
                f"method {self.name!r} uses the number of features of the kernel, which has "
                'base kernels without any; use "dmm", "amm", "ay" or "paper-corrected"'
            )

    def check_noise(self, noise_std: Array) -> None:
        """Raise if the method knows one noise level and observations (n,) have another."""
        literal = self.name in ("paper", "oracle", "paper-corrected")
        if literal and (noise_std != self.noise_std).any():
            raise InputError(
                f"method {self.name!r} knows one noise level, {self.noise_std:g}; "
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


def _set(value: Any, name: str, found: Any) -> None:
    """Replace a NumPy number by one of Python, which JSON can store."""
    object.__setattr__(value, name, found)


class Learned(Protocol):
    """What `ConfidenceSequence` asks of a kernel that was learned: `LearnedKernel`."""

    @property
    def noise_std(self) -> float: ...
    @property
    def delta(self) -> float: ...
    def confidence_kernel(self, norm_bound: float | None) -> KernelSum: ...


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

    From the eigenvalues of K and the squared coordinates of y in its eigenvectors, (r,) each, and
    the squared norm ``rest`` of what is left of y.
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


def log_mixture(parts: Iterable[tuple[Array, Array, float]]) -> float:
    """Logarithm of the mixture over kernels and scales; never positive.

    Of every kernel: evidence (S,), logarithms of the weights of its scales (S,), and its share.
    """
    return _log_sum(np.concatenate([e + weights + log(share) for e, weights, share in parts]))


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
    """rho, in units of the squared outputs, and nu after ``t`` observations, whitened.

    Theorem 5.1 writes t for the step that comes next, which is t + 1 here. ``norm_bound`` is the
    certified one in the norm of the kernel; "paper" and "oracle" take B itself.
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
