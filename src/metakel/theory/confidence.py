r"""Section 5 and Appendix C as functions of numbers: information gain, exploration, regret.

A name ending in ``_paper`` is the statement as printed; the same name without it is the corrected
statement.

Notation: gamma is the information gain :math:`\tfrac12 \log\det(I + K/\bar\sigma^2)`, dim the
dimension of the kernel (d-hat), noise_var the :math:`\bar\sigma^2` of Eq. 3, nu the factor of the
posterior standard deviation in Eq. 2.
"""

from __future__ import annotations

from math import log, log1p, sqrt

from metakel.theory.recovery import COUNT, checked, norm_bound_paper, norm_certificate


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
