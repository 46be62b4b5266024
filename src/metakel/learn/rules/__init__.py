r"""How large lambda must be: the rules behind Lemma B.1 and Theorem 4.3, one lambda per group.

Everything rests on one event: the noise, seen through the features of a group, stays below a
quarter of that group's lambda,

.. math:: A = \Big\{ \tfrac{1}{N} \| (\Phi^T \varepsilon)^{(j)} \|_2 \le \lambda_j / 4
          \ \text{ for all } j \Big\},

and a rule is a value of lambda for which :math:`P(A) \ge 1 - \delta`. The printed rule is one
number for all groups; its proof goes through word for word with a lambda of their own, which
keeps a group of large features from deciding what happens to the others.

==================  ==========================================  ===============================
rule                valid for                                   needs
==================  ==========================================  ===============================
"self-normalised"   sub-Gaussian noise, any adaptive policy     eigenvalues of the kernels
"hkz"               sub-Gaussian noise, points fixed in advance eigenvalues
"chernoff"          the same; never above "hkz"                 eigenvalues
"dimension-free"    the same; never below "hkz"                 sup of the kernels
"monte-carlo"       Gaussian noise, points fixed in advance     a Generator
"paper"             sub-Gaussian noise, fixed points, k_j <= 1  m, n, p, d_max
==================  ==========================================  ===============================

"self-normalised" takes the sizes of the tasks for fixed in advance; where the policy chose them as
well, give `self_normalised` the ``planned_sizes``.

Notation: v are the eigenvalues of a group in each task, :math:`\Psi_j` (Appendix B) has the
eigenvalues v / N, and sup is the largest value of :math:`k_j(x, x)` over the domain.
"""

from __future__ import annotations

from metakel.learn.rules.analytic import chernoff, dimension_free, hkz, paper, self_normalised
from metakel.learn.rules.choose import RULES, choose_lambda
from metakel.learn.rules.simulated import monte_carlo, pivotal_lambda

__all__ = [
    "RULES",
    "chernoff",
    "choose_lambda",
    "dimension_free",
    "hkz",
    "monte_carlo",
    "paper",
    "pivotal_lambda",
    "self_normalised",
]
