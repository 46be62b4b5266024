"""From a history to a learned kernel (Proposition 4.1), and what may be missing from it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array, check_generator, positive
from metakel.charts import text_card
from metakel.data import History
from metakel.errors import InputError, first_of
from metakel.grouplasso import Problem, Solution, lambda_max, solve, solve_square_root
from metakel.grouplasso.path import EXACT_FIT
from metakel.grouplasso.solve import Progress, as_strengths
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn.problem import (
    CV,
    DEFAULT,
    PIVOTAL,
    LearnOptions,
    Loss,
    ScannedTasks,
    Weights,
    as_problem,
    check_more,
    estimate_noise_std,
    matching_base,
    new_tasks,
    noise_from_all_features,
    refitted_weights,
    root_mean_square,
)
from metakel.learn.rules import choose_lambda, pivotal_lambda
from metakel.learn.screening import (
    FEWEST_TASKS,
    Remains,
    Screening,
    chi_square_screening,
    hidden_sizes,
    remains,
    report,
    soft_weights,
)
from metakel.learn.select import cross_validated_lambda

ALLOWED = 2.0  # times tau_j, for `confidence_kernel`; chosen by benchmarks/coverage_default.py
SURPRISING = 0.05  # p-value of what the selection leaves: less is worth a warning
NoiseSource = Literal["given", "all features", "cross-validation", "residuals"]
_SOURCES = {
    "given": "given",
    "all features": "estimated by least squares on all features",
    "cross-validation": "estimated by cross-validation",
    "residuals": "estimated from what the selected kernels leave",
}


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """A learned kernel together with the problem, the solution and the options behind it.

    Attributes
    ----------
    kernel : KernelSum
        The selected base kernels, for `posterior` and other tools. Confidence needs more than the
        selection: give the learned kernel itself to `ConfidenceSequence`.
    solution : Solution
        The solution of Eq. 8, with its duality gap.
    noise_std : float
        As given, or as estimated where ``noise_known`` is False.
    noise_source : "given", "all features", "cross-validation" or "residuals"
        Where it comes from: the user, least squares on all features, or, where tasks have too few
        points for that, kernels that predict held-out tasks; else what the selected kernels leave.
    delta : float
        Probability with which the noise event behind ``lam`` may fail; 1 if ``lam`` was given as a
        number or chosen by "cv", for which nothing is guaranteed.
    rule : str
        The rule for lambda, or "hand".
    options : LearnOptions
        The arguments of `learn_kernel`.
    exact_fit : bool
        Whether the selected kernels fit the observations to 1e-6 of their root mean square. An
        estimated ``noise_std`` then has this smallest value.
    """

    kernel: KernelSum
    solution: Solution
    noise_std: float
    noise_source: NoiseSource
    delta: float
    rule: str
    history: History | ScannedTasks = field(repr=False)
    problem: Problem = field(repr=False)
    options: LearnOptions = field(repr=False)
    exact_fit: bool = False

    @property
    def lam(self) -> Array:
        """(p,) the lambda that was used: that of the rule times the strength."""
        return self.solution.lam

    @property
    def noise_known(self) -> bool:
        """Whether the noise level was given."""
        return self.noise_source == "given"

    @property
    def active(self) -> NDArray[np.intp]:
        """Indices of the selected base kernels."""
        return self.solution.active

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the selected base kernels."""
        return tuple(self.kernel.base.names[j] for j in self.active)

    def update(
        self,
        new: History | ScannedTasks | Iterable[tuple[ArrayLike, ArrayLike]],
        *,
        rng: np.random.Generator | None = None,
        progress: Progress | None = None,
    ) -> LearnedKernel:
        """Learn again from the old and new tasks together, with the same options.

        The result is that of learning from all tasks at once, with lambda chosen for all of them,
        but faster, because the solver starts from the present solution.

        Parameters
        ----------
        new : History or iterable of pairs (X, y)
            A history over the same space and in the same direction; or pairs of inputs in the
            units of the base kernels and values to be maximised.
        rng, progress
            As in `learn_kernel`.
        """
        more = new_tasks(new, self.history.m)
        check_more(self.history, more)
        history: History | ScannedTasks
        if not isinstance(self.history, History):
            history = self.history.joined(more)
        elif isinstance(more, History):
            history = replace(self.history, tasks=(*self.history.tasks, *more.tasks))
        else:
            raise InputError(
                "update: a scan of files cannot be added to a history in memory; scan both, or "
                "read the new tasks into a History"
            )
        # Scaled like this, the weight (2/N) x (or (2/m) x) in every old task stays the same.
        by_task = self.options.loss == "tasks"
        growth = history.m / self.history.m if by_task else history.total / self.history.total
        start = growth * self.solution.eta / self.solution.lam
        return _learn(history, self.kernel.base, self.options, start, rng, progress)

    def hidden(self) -> Array:
        """(p,) how large a base kernel can be that was not selected; 0 for the selected ones.

        In root mean square over tasks of the norm of its part of a function, in which a task counts
        by the square of its energy: the tasks with most points decide (`metakel.learn.screening`).
        """
        return self._hidden[0]

    @property
    def hidden_values(self) -> Array:
        """(p,) what `hidden` means for values: root mean square over all points."""
        return self._hidden[1]

    @cached_property
    def _hidden(self) -> tuple[Array, Array]:
        return hidden_sizes(self.problem, self.lam, self.active)

    @cached_property
    def _remains(self) -> Remains | None:
        """What the residuals hold of unselected kernels; None for kernels without features."""
        if self.problem.kernel_mode:
            return None
        return remains(self.problem, self.active, self.noise_std)

    def confidence_kernel(self, norm_bound: float | None) -> KernelSum:
        r"""The kernel of `ConfidenceSequence`, which does not bet on the selection.

        Kernels that were not selected keep the weight :math:`\min(1, (2 \tau_j / B)^2)`, relative
        to the selected ones, where :math:`\tau_j` is what the residuals of past tasks allow them to
        have (`metakel.learn.screening.Remains`). Functions of norm ``norm_bound`` whose hidden
        parts satisfy :math:`\sum_j \|b_j\|^2 / (2 \tau_j)^2 \le 1` have at most this norm in the
        kernel itself. That the next task is such a function is an assumption, and measured
        (``docs/promises.md``).

        With fewer than 9 tasks, or without a norm bound, it has all kernels with weight 1: so few
        tasks cannot vouch, with probability 0.9, that the next one does without a kernel that none
        of them used.

        Parameters
        ----------
        norm_bound : float or None
            B of `ConfidenceSequence`: bound of the norm of f with weight 1 on every base kernel.
        """
        if norm_bound is None or self.history.m < FEWEST_TASKS:
            if norm_bound is not None:
                positive("norm_bound", norm_bound)
            return KernelSum.uniform(self.kernel.base, weight=1.0)
        bound = positive("norm_bound", norm_bound)
        # Without features there are no residuals of least squares: half of what lambda allows.
        sizes = self.hidden() / 2 if self._remains is None else self._remains.sizes()
        weights = soft_weights(sizes, self.active, norm_bound=bound, c=ALLOWED)
        return KernelSum(self.kernel.base, weights)

    @property
    def typical_norm(self) -> float:
        """Root mean square over past tasks of the norm of their functions, as fitted; see B."""
        if self.problem.kernel_mode:
            raise InputError("norms of past tasks need base kernels with features")
        return float(np.linalg.norm(self.refitted())) / sqrt(self.history.m)

    def refitted(self) -> Array:
        """(p,) weights without the shrinkage of the lasso; see `metakel.learn.problem`."""
        return refitted_weights(self.problem, self.active, self.noise_std)

    def screening(self, *, delta: float = 0.1, beta: float = 0.1) -> Screening:
        """Test every base kernel, and how strong one must be to be found by the test.

        The chi-square test is exact for Gaussian noise and points fixed in advance. It requires
        base kernels with features, and in every task as many points as there are features.
        See `metakel.learn.screening`.
        """
        base = self.kernel.base
        if not isinstance(self.history, History):
            raise InputError("screening needs all tasks in memory, but they are on disk")
        if not base.finite:
            raise InputError("screening needs base kernels with features, for least-squares fits")
        short = [task.name for task in self.history if task.n < base.dim]
        if short:
            raise InputError(
                f"screening needs at least {base.dim} points (one per feature) in every task; "
                f"{len(short)} of {self.history.m} have fewer, e.g. {short[0]}"
            )
        return chi_square_screening(
            [base.features(task.X) for task in self.history],
            [task.y for task in self.history],
            base.groups,
            noise_std=self.noise_std,
            delta=delta,
            beta=beta,
        )

    def report(self) -> str:
        """Text for people: the selected kernels, their strength, and what may be missing."""
        return report(self)

    @property
    def missed_p_value(self) -> float:
        """How often the selected kernels and noise alone leave as much as past tasks have left.

        Gaussian noise of level ``noise_std``, points fixed in advance; 1 where base kernels have no
        features. See `metakel.learn.screening.Remains`.
        """
        return 1.0 if self._remains is None else self._remains.p_value()

    @property
    def missed(self) -> bool:
        """Whether the selection has missed something, at a level of 5 %."""
        return self.missed_p_value < SURPRISING

    @property
    def missed_signal(self) -> bool:
        """Whether nothing was selected although y contains more than noise.

        Only for estimated noise. With probability 1 - delta, pure noise reaches at most half of
        the rule's lambda, so a higher value shows that there is signal. With a strength of 0.5 or
        less such a signal is selected.
        """
        if self.active.size or self.noise_known or self.rule != PIVOTAL:
            return False
        return lambda_max(self.problem, self.lam) > self._noise_share

    @property
    def _noise_share(self) -> float:
        """The share of lambda that pure noise stays below with probability 1 - delta."""
        return 0.5 / self.options.strength

    def nothing_found(self) -> str:
        """Why nothing was selected with an estimated noise level, and what to do about it."""
        share = lambda_max(self.problem, self.lam)
        most = self._noise_share
        limit = (
            f"; pure noise at most {most:.0%}, at delta = {self.delta:g}" if share > most else ""
        )
        return (
            "nothing was learned: no base kernel stands out from noise of unknown level (the "
            f"strongest reaches {share:.0%} of its lambda{limit}), so the estimated noise_std "
            f"{self.noise_std:.3g} is the root mean square of y; pass noise_std=, or lam= as a "
            "number, or use more points per task or base kernels with fewer features"
        )

    def __repr__(self) -> str:
        noise = f"noise {self.noise_std:.3g} ({'given' if self.noise_known else 'estimated'})"
        return (
            f"LearnedKernel({self.kernel!r}, {self.history.m} tasks, lambda by {self.rule}, "
            f"{noise}, gap {self.solution.gap:.1e})"
        )

    def _repr_html_(self) -> str:
        return text_card(str(self))

    def __str__(self) -> str:
        count, p = self.active.size, self.kernel.base.p
        noise = f"noise {self.noise_std:.3g} ({_SOURCES[self.noise_source]})"
        rest = f"weights {self.options.weights}"
        head = f"{count} of {p} base kernels learned from {self.history.m} tasks"
        if not count:
            share = lambda_max(self.problem, self.lam)
            head += (
                ": none stands out from the noise "
                f"(the strongest reaches {share:.0%} of its lambda)"
            )
        else:
            head += f": {first_of(self.names)}"
        gap = f"certified gap {self.solution.gap:.1e}"
        state = "" if self.solution.converged else " (NOT converged)"
        return f"{head}\n  lambda by {self.rule}, {noise}, {gap}{state}, {rest}"


def learn_kernel(
    history: History | ScannedTasks,
    base: KernelDictionary | None = None,
    *,
    noise_std: float | None = None,
    lam: str | ArrayLike = DEFAULT,
    strength: float = 0.5,
    delta: float = 0.05,
    weights: Weights = "uniform",
    loss: Loss = "points",
    tol: float = 1e-10,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> LearnedKernel:
    r"""Meta-KeL: the sparse sum of base kernels that explains all tasks (Proposition 4.1).

    Parameters
    ----------
    history : History
        Or tasks on disk, which are never held together: ``metakel.scale.scan(path, base)``.
    base : KernelDictionary
        Base kernels k_1 ... k_p (Eq. 5); a scan has them already.
    noise_std : float, optional
        Noise level of the observations. None estimates it, at 1e-6 of the root mean square of y
        or more: less cannot be told from rounding. Where tasks have more points than features, the
        estimate is that of least squares on all features, so that a kernel that is missed does
        not count as noise. Otherwise it is what the kernels leave that predict held-out tasks best
        (``lam="cv"``): estimated, without a theorem, and not covered by delta. With one task, or
        tasks on disk, the group square-root lasso selects, and what it does not select counts as
        noise; a warning says so where nothing is selected although noise alone would look
        different.
    lam : str, float or (p,) array
        A rule of `metakel.learn.rules`; "square-root", which is pivotal, so that it asks for no
        noise level (Gaussian noise, points fixed in advance), and replaces the default rule where
        the noise is neither given nor estimated; "cv", the largest lambda that
        predicts held-out tasks about as well as the best one, whatever the noise (at least 2
        tasks); or the value itself. Nothing vouches for what the last two select.
    strength : float
        The rule's lambda is multiplied by this. With 0.5, noise alone still selects nothing with
        probability 1 - delta, and kernels half as strong are found (``docs/promises.md``); 1 is the
        paper's constant, which its error bounds need. Below 0.5 noise may select kernels, which
        makes intervals wider, not wrong. Not for "cv" and for values.
    delta : float
        Probability with which the noise event that ``lam`` guards against may fail: half of what
        `ConfidenceSequence` has in all by default.
    weights : "uniform" or EtaWeights
        Weight 1 on every selected kernel, which gives the sharpest certified confidence sets
        (``docs/reading-the-paper.md``), or the paper's eta of Proposition 4.1
        (`metakel.learn.EtaWeights`).
    loss : "points" or "tasks"
        For tasks of unequal size: every observation counts alike (default), or every task does.
    tol : float
        Duality gap to reach, relative to the mean square of the values.
    rng : Generator, optional
        For the rules that simulate.
    progress : callable(round, gap), optional
    """
    if rng is not None:
        check_generator(rng)
    how = LearnOptions(noise_std, lam, strength, delta, weights, loss, tol)
    return _learn(history, matching_base(history, base), how, None, rng, progress)


def _learn(
    history: History | ScannedTasks,
    base: KernelDictionary,
    how: LearnOptions,
    start: Array | None,
    rng: np.random.Generator | None,
    progress: Progress | None,
) -> LearnedKernel:
    """Choose lambda, solve from weights x = ``start`` = eta / lambda, make the kernel."""
    problem = as_problem(history, base, how.loss)
    rule = how.lam if isinstance(how.lam, str) else "hand"
    noise, floor = how.noise_std, EXACT_FIT * root_mean_square(problem)
    source: NoiseSource = "given"
    if noise is None and floor > 0:
        noise, source = noise_from_all_features(problem), "all features"
    guaranteed = rule not in (CV, "hand")
    several = isinstance(history, History) and history.m > 1
    if noise is None and rule == DEFAULT and floor > 0 and several:
        # What the kernels leave that predict held-out tasks best, where n <= p in most tasks. An
        # estimate without a theorem: the square-root lasso, which has one, counts every kernel that
        # it misses as noise, and misses more the larger its noise is.
        lam = cross_validated_lambda(history, base, how.loss)
        noise = estimate_noise_std(problem, solve(problem, lam, tol=how.tol))
        source = "cross-validation"
    if rule == PIVOTAL or (guaranteed and noise is None):
        rule = PIVOTAL
        lam = how.strength * pivotal_lambda(problem, delta=how.delta, rng=rng)
        solution, _ = solve_square_root(problem, lam, tol=how.tol, start=start, progress=progress)
    else:
        if guaranteed:
            assert noise is not None
            level = noise if source == "given" else max(noise, floor)
            lam = how.strength * choose_lambda(
                rule, problem, noise_std=level, delta=how.delta, sup=base.sup, rng=rng
            )
        elif rule == CV:
            lam = cross_validated_lambda(history, base, how.loss)
        else:
            lam = as_strengths(how.lam, problem.p)
        eta = None if start is None else start * lam
        solution = solve(problem, lam, tol=how.tol, start=eta, progress=progress)
    if noise is None:
        noise, source = estimate_noise_std(problem, solution), "residuals"
    exact = source != "given" and noise <= floor
    if exact:
        noise = floor
    raw = solution.eta
    if how.refit and solution.active.size:
        raw = refitted_weights(problem, solution.active, noise)
    learned = LearnedKernel(
        kernel=how.kernel(base, solution.active, raw),
        solution=solution,
        noise_std=float(noise),
        noise_source=source,
        delta=how.delta if guaranteed else 1.0,
        rule=rule,
        history=history,
        problem=problem,
        options=how,
        exact_fit=exact,
    )
    if learned.missed_signal:
        warnings.warn(learned.nothing_found(), stacklevel=3)
    return learned
