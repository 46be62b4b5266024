r"""The statements of the paper as functions of numbers: Sections 4 and 5, Appendices B and C.

A name ending in ``_paper`` is the statement as printed, kept to reproduce the paper; the same name
without it is the corrected statement. `docs/reading-the-paper.md` explains each difference.

Notation: m tasks of n points, N = mn, p base kernels of dimension at most d_max, sparsity a bound
on the number of base kernels in the true kernel, kappa the constant of Assumption 4.2, beta_min the
c_1 of Assumption 3.1. The "error" is the largest
:math:`\|\hat\beta^{(j)} - \beta^{*(j)}\|_2` over the base kernels j of the true kernel, for the
coefficients of the features as they are. gamma is the information gain
:math:`\tfrac12 \log\det(I + K/\bar\sigma^2)`, dim the dimension of the kernel (d-hat), noise_var
the :math:`\bar\sigma^2` of Eq. 3, nu the factor of the posterior standard deviation in Eq. 2.

Detection: for Gaussian noise, points fixed in advance and tasks with n >= d, leaving kernel j out
of all least-squares fits increases the residual sum of squares by :math:`\sigma^2 T_j`, where
:math:`T_j \sim \chi^2(m d_j, D_j^2 / \sigma^2)` and :math:`D_j^2` is the energy of kernel j that
the other kernels cannot explain. `metakel.learn.screening` computes T_j.

Arguments of all statements are checked by name: a name means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import inf, log, log1p, sqrt
from numbers import Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from metakel.errors import InputError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")


class Allowed(NamedTuple):
    """A set of numbers, and its description in messages."""

    holds: Callable[[Any], bool]
    words: str

    def check(self, name: str, value: Any) -> None:
        """Raise if the value is not in the set."""
        if not (isinstance(value, int | float | Real) and self.holds(value)):
            raise InputError(f"{name} is {value!r}; expected {self.words}")


COUNT = Allowed(lambda x: x >= 1 and x % 1 == 0, "a whole number >= 1")
COUNT_OR_NONE = Allowed(lambda x: x >= 0 and x % 1 == 0, "a whole number >= 0")
PROBABILITY = Allowed(lambda x: 0 < x < 1, "a number between 0 and 1")
POSITIVE = Allowed(lambda x: 0 < x < inf, "a number > 0")
NOT_NEGATIVE = Allowed(lambda x: 0 <= x < inf, "a number >= 0")
# Bounds may be infinite.
BOUND = Allowed(lambda x: x >= 0, "a number >= 0, or inf")

RANGES = {
    COUNT: "m p d d_max horizon total models total_dim",
    COUNT_OR_NONE: "dim sparsity t",
    PROBABILITY: "delta beta weight",
    POSITIVE: "n kappa beta_min smallest_weight noise_var factor sup lam_ratio scale",
    NOT_NEGATIVE: "noise_std lam weight_sum smallest coherence phi_max radius phi_norm trace",
    BOUND: "norm_bound norm recovery_error information_gain nu",
}
ALLOWED = {name: allowed for allowed, names in RANGES.items() for name in names.split()}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: check the keyword arguments of a statement by their names."""

    @wraps(function)
    def statement(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name in ALLOWED:
                ALLOWED[name].check(name, value)
        return function(*args, **kwargs)

    return statement


@checked
def screening_threshold(*, m: int, d: int, p: int, delta: float) -> float:
    """Keep kernel j if T_j exceeds this chi-square quantile at level 1 - delta / p.

    With probability 1 - delta no kernel outside the true one is kept (compare Proposition 4.4).
    """
    from scipy.special import chdtri

    return float(chdtri(m * d, delta / p))


@checked
def detectable_noncentrality(*, m: int, d: int, p: int, delta: float, beta: float) -> float:
    """Smallest D_j^2 / noise variance at which kernel j is kept with probability 1 - beta.

    It replaces Assumption 3.1 in Theorem 4.3 by a condition that is exact, can be computed, and
    does not involve kappa.
    """
    from scipy.special import chdtrc, chndtrinc

    threshold = screening_threshold(m=m, d=d, p=p, delta=delta)
    if chdtrc(m * d, threshold) >= 1 - beta:
        return 0.0
    return float(chndtrinc(threshold, m * d, beta))


@checked
def lambda_min_paper(
    *, noise_std: float, m: int, n: float, p: int, d_max: int, delta: float, two_log: bool = False
) -> float:
    r"""Smallest lambda that Theorem 4.3 and Lemma B.1 allow, as printed (k_j <= 1).

    .. math:: \frac{4\sigma}{\sqrt{mn}} \sqrt{1 + \frac{2}{m}
              \left(\log\tfrac{2p}{\delta} + \sqrt{m d_{\max} \log\tfrac{2p}{\delta}}\right)}

    ``two_log=True`` doubles the first logarithm, as in the last line of the printed proof. The
    statement itself holds for sub-Gaussian noise and points fixed in advance, because `lambda_min`
    is smaller and valid.
    """
    log_term = log(2 * p / delta)
    noise = 1 + 2 / m * ((1 + two_log) * log_term + sqrt(m * d_max * log_term))
    return 4 * noise_std / sqrt(m * n) * sqrt(noise)


@checked
def lambda_min(*, noise_std: float, m: int, n: float, p: int, delta: float) -> float:
    r"""A lambda for which Lemma B.1 holds, without d_max (k_j <= 1, points fixed in advance).

    .. math:: \frac{4\sigma}{\sqrt{mn}} \sqrt{1 + 2\sqrt{x/m} + 2x/m}, \qquad x = \log(p/\delta)

    Hsu, Kakade and Zhang (2012) with :math:`\operatorname{tr}\Psi_j \le 1` and
    :math:`\|\Psi_j\|_2 \le 1/m`. `metakel.learn.rules` has sharper values that depend on the data,
    and the rule for adaptive policies.
    """
    x = log(p / delta)
    return 4 * noise_std / sqrt(m * n) * sqrt(1 + 2 * sqrt(x / m) + 2 * x / m)


@checked
def recovery_error_paper(
    *,
    noise_std: float,
    m: int,
    n: float,
    p: int,
    d_max: int,
    delta: float,
    sparsity: int,
    kappa: float,
) -> float:
    r"""epsilon(n, m) of Theorem 4.3 and Lemma B.3 as printed.

    It is `recovery_error` at the *smallest* lambda, but stated for every larger lambda, too;
    `tests/statements` has a counterexample.
    """
    lam = lambda_min_paper(noise_std=noise_std, m=m, n=n, p=p, d_max=d_max, delta=delta)
    return recovery_error(lam=lam, sparsity=sparsity, kappa=kappa)


@checked
def recovery_error(*, lam: float, sparsity: int, kappa: float) -> float:
    r"""What the proof of Lemma B.3 shows: :math:`8 \lambda s / \kappa^2`, with the lambda used."""
    return 8 * lam * sparsity / kappa**2


@checked
def recovery_error_sharp(*, lam: float, sparsity: int, kappa: float) -> float:
    r"""Lemma B.3 sharpened: :math:`\tfrac32 \lambda \sqrt s / \kappa^2` bounds the error.

    Using half of the penalty on the left of Lemma B.2 for the active groups leaves
    :math:`\tfrac1N \|\Phi\Delta\|^2 \le \tfrac32 \lambda \sqrt s \|\Delta_J\|`. With one lambda
    per group, ``lam * sqrt(sparsity)`` is the root of their sum of squares over J, and kappa must
    be that of the weighted cone :math:`\sum_{j \notin J} \lambda_j \|\Delta_j\| \le 3 \sum_J
    \lambda_j \|\Delta_j\|`, which contains more than that of Assumption 4.2. Needs the
    whole lambda of a rule, ``strength=1``.
    """
    return 1.5 * lam * sqrt(sparsity) / kappa**2


@checked
def prediction_error(*, lam: float, sparsity: int, kappa: float) -> float:
    r"""Lemma B.2 with Assumption 4.2: a bound on :math:`\tfrac1N\|\Phi(\hat\beta - \beta^*)\|^2`.

    :math:`(\tfrac32 \lambda \sqrt s / \kappa)^2`; the paper has 2 instead of 3/2. With one lambda
    per group, lam and kappa are those of `recovery_error_sharp`.
    """
    return (1.5 * lam * sqrt(sparsity) / kappa) ** 2


@checked
def prediction_error_slow(*, lam: float, norm_bound: float, m: int) -> float:
    r"""Lemma B.2 without a condition on the points: :math:`\tfrac32 \lambda \sqrt m B`.

    On the event A, :math:`\tfrac1N\|\Phi(\hat\beta - \beta^*)\|^2 \le \tfrac32 \sum_j \lambda_j
    \|\beta^{*(j)}\|`, and :math:`\|\eta^*\|_1 \le 1` makes that sum at most
    :math:`\max_j \lambda_j \sqrt m B` by Cauchy-Schwarz.
    """
    return 1.5 * lam * sqrt(m) * norm_bound


@checked
def screening_energy(*, lam: float, total: int, norm_bound: float, m: int) -> float:
    r"""Energy above which the group lasso keeps a kernel on the event A, without kappa and c_1.

    The energy of kernel j, :math:`D_j^2 = \sum_s \|P_{-j,s}^\perp \Phi_s^{(j)} b_s^{(j)}\|^2`, is
    what no combination of the other kernels explains. Without j the prediction error is at least
    that, and by Lemma B.2 it is at most N times `prediction_error_slow`. Replaces Assumption 3.1
    (beta-min).
    """
    return total * prediction_error_slow(lam=lam, norm_bound=norm_bound, m=m)


@checked
def kappa_upper_bound(*, m: int) -> float:
    r"""Largest possible kappa of Assumption 4.2: :math:`\kappa^2 \le 1/m` for k_j <= 1.

    Take a vector with a single task and a single group. Hence the recovery error does not decrease
    with the number of tasks as 1/sqrt(mn) suggests, because kappa decreases as well.
    """
    return 1 / sqrt(m)


@checked
def sparsity_bound_paper(*, m: int, n: float, sparsity: int, kappa: float) -> float:
    r"""Proposition 4.4 as printed, :math:`64 s / (mn\kappa^2)`: false, see `sparsity_bound`.

    It assumes that the spectral norm of the mn x md design is at most 1.
    """
    return 64 * sparsity / (m * n * kappa**2)


@checked
def sparsity_bound(*, sparsity: int, kappa: float, phi_max: float) -> float:
    r"""Proposition 4.4 as proved: :math:`64 s \phi_{\max} / \kappa^2`.

    phi_max is the largest eigenvalue of :math:`\Psi`. It is at least kappa squared, so the bound
    is at least 64 s: correct, but no useful guarantee of sparsity.
    """
    return 64 * sparsity * phi_max / kappa**2


@checked
def norm_bound_paper(*, norm_bound: float, recovery_error: float, beta_min: float) -> float:
    r"""B-hat of Lemma B.4, Eq. C.2 and Theorem 5.1 as printed: :math:`B(1 + \epsilon/(2c_1))`.

    Too small: these are the first two terms of the series of `norm_bound_series`, in which all
    terms are positive. Theorem 4.3 prints 1 + epsilon without the 2 c_1.
    """
    return norm_bound * (1 + recovery_error / (2 * beta_min))


@checked
def norm_bound_series(*, norm_bound: float, recovery_error: float, beta_min: float) -> float:
    r"""What the proof of Lemma B.4 shows (Theorem 4.3, Eq. C.2): :math:`B / \sqrt{1-\epsilon/c_1}`.

    Infinite from epsilon = c_1 on, where the proof does not apply.
    """
    share = recovery_error / beta_min
    return norm_bound / sqrt(1 - share) if share < 1 else inf


@checked
def norm_certificate(*, norm_bound: float, smallest_weight: float) -> float:
    r"""Lemma B.4 without epsilon, kappa and c_1: :math:`B / \sqrt{\min_j w_j}`.

    Holds for every kernel :math:`\sum_j w_j k_j` whose active set contains that of the true kernel:
    :math:`\|f\|^2 \le \sum_j \|\theta_j\|^2 / w_j \le B^2 \max_j \eta^*_j / w_j`.
    """
    return norm_bound / sqrt(smallest_weight)


@checked
def function_norm(*, coefficient_norms: Sequence[float], weights: Sequence[float]) -> float:
    r"""Norm of :math:`f = \sum_j \varphi_j^T \theta_j` in the space of :math:`\sum_j w_j k_j`.

    :math:`\|f\|^2 = \sum_j \|\theta_j\|^2 / w_j` for linearly independent features: Eq. 6 has
    :math:`\theta_j = \sqrt{\eta^*_j}\beta^{(j)}`, and Eq. A.1 orthonormal features. Infinite if f
    uses a kernel of weight 0. (Appendix A.1 prints the square instead of the norm.)
    """
    if len(coefficient_norms) != len(weights):
        raise ShapeError(
            f"found {len(coefficient_norms)} coefficient_norms and {len(weights)} weights; "
            "expected one of each per kernel"
        )
    for name, numbers in (("coefficient_norms", coefficient_norms), ("weights", weights)):
        for j, number in enumerate(numbers):
            NOT_NEGATIVE.check(f"{name}[{j}]", number)
    pairs = [(c, w) for c, w in zip(coefficient_norms, weights, strict=True) if c != 0]
    return sqrt(sum(c**2 / w if w > 0 else inf for c, w in pairs))


@checked
def rescaled_norm_paper(*, norm: float, factor: float) -> float:
    r"""Section 4 as printed: the norm of f in the space of c k is its norm in that of k over c."""
    return norm / factor


@checked
def rescaled_norm(*, norm: float, factor: float) -> float:
    r"""The norm of f in the space of c k (needed for Eq. 9): :math:`\|f\|_k / \sqrt c`."""
    return norm / sqrt(factor)


@checked
def full_kernel_norm_paper(*, norm_bound: float, p: int) -> float:
    r"""Section 5 as printed: the norm of f in the space of k_full (Eq. 10) is p times B."""
    return p * norm_bound


@checked
def full_kernel_norm(*, norm_bound: float, p: int) -> float:
    r"""The norm of f in the space of k_full (Eq. 10) is at most :math:`\sqrt p B`."""
    return sqrt(p) * norm_bound


# Section 5 and Appendix C: information gain, exploration, regret


def noise_var_paper(*, t: int) -> float:
    r"""The regulariser of Theorem 5.1 at step t, :math:`\bar\sigma^2 = 1 + 2/t` (Lemma C.1)."""
    COUNT.check("t", t)
    return 1 + 2 / t


@checked
def information_gain_paper(*, dim: int, t: int, noise_var: float, beta_min: float) -> float:
    r"""Lemma C.2 as printed: :math:`\tfrac{\hat d}{2} \log(1 + t / (\bar\sigma^2 c_1))`.

    In its proof, the logarithm contains the largest learned weight; without it the bound is false.
    """
    return dim / 2 * log1p(t / (noise_var * beta_min))


@checked
def information_gain_bound(
    *, dim: int, t: int, noise_var: float, weight_sum: float, sup: float = 1.0
) -> float:
    r"""Lemma C.2 corrected, for :math:`k = \sum_j w_j k_j` with :math:`k_j \le` sup.

    .. math:: \gamma_t \le \frac{\hat d}{2} \log\Big(1 +
              \frac{t \|w\|_1 \sup_j k_j}{\bar\sigma^2 \hat d}\Big)

    Where the points are known, compute the log det itself, which is smaller.
    """
    return dim / 2 * log1p(t * weight_sum * sup / (noise_var * dim)) if dim else 0.0


@checked
def exploration_vanilla(
    *, norm_bound: float, noise_std: float, information_gain: float, delta: float
) -> float:
    r"""nu of Lemma C.1 (Chowdhury and Gopalan), for a kernel in whose space f has norm B-hat.

    .. math:: \hat B + \sigma\sqrt{2(\gamma + 1 + \log(1/\delta))}

    Stated for the regulariser 1 + 2/T with fixed T. It also holds for 1 + 2/t, because the "+ 1"
    covers the change of the regulariser over time.
    """
    return norm_bound + noise_std * sqrt(2 * (information_gain + 1 + log(1 / delta)))


@checked
def exploration_oracle(
    *, norm_bound: float, noise_std: float, dim: int, t: int, delta: float
) -> float:
    r"""nu_t for the true kernel, the comparison of Section 5 (Lemma C.1).

    :math:`B + \sigma\sqrt{d^* \log(1 + t/\bar\sigma^2) + 2 + 2\log(1/\delta)}`, valid for
    :math:`k^*(x, x) \le 1`.
    """
    gain = dim / 2 * log1p(t / noise_var_paper(t=t))
    return exploration_vanilla(
        norm_bound=norm_bound, noise_std=noise_std, information_gain=gain, delta=delta
    )


@checked
def exploration_paper(
    *,
    norm_bound: float,
    noise_std: float,
    dim: int,
    t: int,
    delta: float,
    recovery_error: float,
    beta_min: float,
) -> float:
    r"""nu_t of Theorem 5.1 and Corollary 5.2 as printed.

    .. math:: B\Big(1 + \frac{\epsilon}{2c_1}\Big) + \sigma\sqrt{\hat d
              \log\Big(1 + \frac{t}{\bar\sigma^2 c_1}\Big) + 2 + 2\log(1/\delta)}
    """
    gain = information_gain_paper(dim=dim, t=t, noise_var=noise_var_paper(t=t), beta_min=beta_min)
    inflated = norm_bound_paper(
        norm_bound=norm_bound, recovery_error=recovery_error, beta_min=beta_min
    )
    return exploration_vanilla(
        norm_bound=inflated, noise_std=noise_std, information_gain=gain, delta=delta
    )


@checked
def exploration(
    *,
    norm_bound: float,
    noise_std: float,
    smallest_weight: float,
    information_gain: float,
    noise_var: float,
    delta: float,
) -> float:
    r"""nu of Theorem 5.1 corrected, for any fixed :math:`\bar\sigma^2`.

    .. math:: \frac{B}{\sqrt{\min_j w_j}} + \frac{\sigma}{\bar\sigma}
              \sqrt{2\gamma + 2\log(1/\delta)}

    gamma may be the realised information gain. delta is that of the interval only. The probability
    that learning missed a kernel must be added (the paper prints one delta for both).
    """
    radius = norm_certificate(norm_bound=norm_bound, smallest_weight=smallest_weight)
    return radius + noise_std * sqrt(2 * (information_gain + log(1 / delta)) / noise_var)


@checked
def regret_vanilla(
    *, horizon: int, norm_bound: float, information_gain: float, delta: float
) -> float:
    r"""Lemma C.3 (Chowdhury and Gopalan), up to its constant.

    .. math:: \hat B\sqrt{T\gamma} + \sqrt{T\gamma(\gamma + \log(1/\delta))}
    """
    root = sqrt(horizon * information_gain)
    return norm_bound * root + root * sqrt(information_gain + log(1 / delta))


@checked
def regret_paper(
    *, horizon: int, norm_bound: float, dim: int, recovery_error: float, delta: float
) -> float:
    r"""Corollary 5.2 as printed, up to its constant.

    .. math:: \sqrt{\hat d T\log T} \Big(B(1 + \epsilon) + \sqrt{\hat d\log T + \log 1/\delta}\Big)
    """
    growth = dim * log(horizon)
    inflated = norm_bound * (1 + recovery_error)
    return sqrt(growth * horizon) * (inflated + sqrt(growth + log(1 / delta)))


@checked
def regret_bound(
    *, horizon: int, nu: float, information_gain: float, noise_var: float, sup: float = 1.0
) -> float:
    r"""Corollary 5.2 with its constant: a bound on the cumulative regret while the sets cover f.

    .. math:: R_T \le 2\nu_T \sqrt{T \sum_t \sigma_{t-1}^2(x_t)}
              \le 2\nu_T \sqrt{T \, \frac{\sup k}{\log(1 + \sup k/\bar\sigma^2)} \, 2\gamma_T}

    nu is the largest factor used up to the horizon, and sup the largest k(x, x) of the kernel. The
    paper assumes that sup is 1, although it may exceed 1 after Eq. 9. The quotient bounds a
    posterior variance relative to twice its contribution to the information gain.
    """
    variance_per_gain = sup / log1p(sup / noise_var)
    return 2 * nu * sqrt(horizon * variance_per_gain * 2 * information_gain)


@checked
def reach_width(
    *,
    n: float,
    dim: int,
    phi_norm: float,
    trace: float,
    noise_std: float,
    norm: float,
    scale: float,
    weight: float,
    delta: float,
) -> float:
    r"""Half-width (Proposition 24) of the set without a norm bound, at any point of the domain.

    .. math:: \sigma \|\phi(x)\|_{G^{-1}} \sqrt{\frac1n \Big(d \log\Big(1 +
              \frac{c\, n \operatorname{tr} G}{d \sigma^2}\Big) + 2\log\frac{1}{\pi\delta} +
              \frac{\|\hat\theta\|^2}{c}\Big)}

    after n measurements at points with :math:`G = \frac1n \sum \phi\phi'` of full rank ``dim``.
    ``phi_norm`` is the norm of the features of the point in :math:`G^{-1}`, ``norm`` that of least
    squares; c = ``scale``^2 is any scale of the mixture, and pi = ``weight`` its weight.
    """
    if not noise_std:
        return 0.0
    squared = scale**2
    gain = dim * log1p(squared * n * trace / (dim * noise_std**2)) if dim else 0.0
    radius = gain + 2 * log(1 / (weight * delta)) + norm**2 / squared
    return noise_std * phi_norm * sqrt(radius / n)
