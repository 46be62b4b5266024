r"""Detection limits of a chi-square test, which replaces Assumption 3.1 and epsilon.

For Gaussian noise, points fixed in advance and tasks with n >= d, leaving kernel j out of all
least-squares fits increases the residual sum of squares by :math:`\sigma^2 T_j`, where
:math:`T_j \sim \chi^2(m d_j, D_j^2 / \sigma^2)` and :math:`D_j^2` is the energy of kernel j that
the other kernels cannot explain. `metakel.learn.screening` computes T_j.
"""

from __future__ import annotations

from metakel.theory.arguments import checked


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
