"""A learned kernel with what is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel._arrays import Array
from metakel.data import History
from metakel.errors import InputError
from metakel.grouplasso import Problem, Solution, lambda_max
from metakel.grouplasso.working_set import Progress
from metakel.kernels import KernelSum
from metakel.learn.options import PIVOTAL, LearnOptions, Weights
from metakel.learn.problems import OutOfCoreHistory, OutOfCoreProblem, as_problem
from metakel.learn.refit import refitted_weights
from metakel.learn.screening import Screening, chi_square_screening
from metakel.learn.update import check_more, new_tasks


@dataclass(frozen=True, eq=False)
class LearnedKernel:
    """A learned kernel, how it was found and how far to trust it.

    Attributes
    ----------
    kernel : KernelSum
        Ready for `GPUCB`, `posterior` and `ConfidenceSequence`.
    solution : Solution
        Of Eq. 8, with its duality gap.
    lam : (p,) array
        The lambda that was used, one per base kernel.
    noise_std : float
        As given, or as estimated where ``noise_known`` is False.
    delta : float
        Probability with which the noise event behind ``lam`` may fail; 1 where lam was
        chosen by hand or by "cv", which nothing vouches for.
    exact_fit : bool
        The selected kernels explain the observations but for 1e-6 of their root mean square, and
        an estimated ``noise_std`` is that floor.
    """

    kernel: KernelSum
    solution: Solution
    lam: Array
    noise_std: float
    noise_known: bool
    delta: float
    rule: str
    weights: Weights
    history: History | OutOfCoreHistory = field(repr=False)
    problem: Problem | OutOfCoreProblem = field(repr=False)
    how: LearnOptions = field(repr=False)
    exact_fit: bool = False

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
        new: History | OutOfCoreHistory | Iterable[tuple[ArrayLike, ArrayLike]],
        *,
        rng: np.random.Generator | None = None,
        progress: Progress | None = None,
    ) -> LearnedKernel:
        """Learn from more tasks in the same way, starting from here.

        The answer is that of learning from all tasks together, to the same certified gap; lambda
        is chosen for all of them. ``new`` is a history over the same space, in the same direction,
        or pairs (X, y) with the numbers that the base kernels see and larger y for better.
        """
        from metakel.learn.kernel import learn_again

        base, loss = self.kernel.base, self.how.loss
        more = new_tasks(new, self.history.m)
        check_more(self.history, more)
        history: History | OutOfCoreHistory
        problem: Problem | OutOfCoreProblem
        if not isinstance(self.history, History):
            history, problem = self.history.joined(more, base, loss)
        elif isinstance(more, History):
            history = replace(self.history, tasks=(*self.history.tasks, *more.tasks))
            problem = as_problem(history, base, loss)
        else:
            raise InputError(
                "a scan cannot be added to a history in memory; scan both, or read the new tasks"
            )
        # The ridge of every task, (2/N) x (or (2/m) x), depends on no other task.
        growth = problem.total / self.problem.total
        if loss == "tasks":
            growth = problem.m / self.problem.m
        start = growth * self.solution.eta / self.solution.lam
        return learn_again(history, problem, base, self.how, start, rng, progress)

    def refitted(self) -> Array:
        """(p,) weights without the shrinkage of the lasso: `refit.refitted_weights`."""
        return refitted_weights(self.problem, self.active, self.noise_std)

    def screening(self, *, delta: float = 0.1, beta: float = 0.1) -> Screening:
        """Which base kernels a chi-square test keeps, and the smallest signal it would keep.

        Exact for Gaussian noise and points fixed in advance; needs features, and as many points
        in every task as there are features.
        """
        base = self.kernel.base
        if not isinstance(self.history, History):
            raise InputError("screening fits every task and needs them in memory")
        if not base.finite:
            raise InputError("screening compares least-squares fits and needs feature kernels")
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
        """What was selected, how strongly, and what could have been missed."""
        eta, names = self.solution.eta, self.kernel.base.names
        lines = [str(self)]
        if self.active.size:
            share = eta / eta.sum()
            width = max(len(names[j]) for j in self.active)
            lines.append(f"  {'kernel':{width}}  strength  share")
            lines += [
                f"  {names[j]:{width}}  {eta[j]:8.4g}  {share[j]:5.1%}"
                for j in sorted(self.active, key=lambda j: -eta[j])
            ]
        if self.exact_fit:
            lines.append(
                "  they explain the observations to 1e-6 of their root mean square, below which "
                "noise is not told from rounding: noise_std is that much; give a smaller one if "
                "you know it"
            )
        if self.rule == PIVOTAL and not (self.active.size or self.noise_known):
            lines.append(f"  {self.nothing_found()}")
        try:
            test = self.screening()
        except InputError as error:
            return "\n".join([*lines, f"  no statement on what was missed: {error}"])
        missed = [names[j] for j in np.setdiff1d(test.kept, self.active)]
        lines.append(
            f"  every base kernel with unexplained energy above {test.detectable.max():.3g} "
            f"(sum of squares over {self.history.total} observations) would have been kept with "
            "probability 0.9 (chi-square test: Gaussian noise, points fixed in advance)"
        )
        if missed:
            lines.append(f"  the same test also finds: {', '.join(missed)}")
            if not self.noise_known:
                lines.append(
                    "  what they explain counts as noise so far; noise_std= would tell them apart"
                )
        return "\n".join(lines)

    @property
    def missed_signal(self) -> bool:
        """Nothing was selected with an estimated noise, and yet y is not noise alone, up to delta.

        Under the event behind the rule, which has probability 1 - delta, noise alone reaches half
        of what lambda asks for.
        """
        if self.active.size or self.noise_known or self.rule != PIVOTAL:
            return False
        return lambda_max(self.problem, self.lam) > 0.5

    def nothing_found(self) -> str:
        """What an empty selection means where the noise was estimated, and what helps."""
        share = lambda_max(self.problem, self.lam)
        beyond = f", and noise alone 50% at most, at delta = {self.delta:g}" if share > 0.5 else ""
        return (
            "nothing was learned: with noise of unknown size no base kernel stands out (the "
            f"strongest reaches {share:.0%} of what its lambda asks for{beyond}), so that the "
            f"estimated noise_std {self.noise_std:.3g} is the root mean square of y itself; give "
            "noise_std=, or lam= as a number (more points per task, or base kernels with fewer "
            "features, help as well)"
        )

    def __repr__(self) -> str:
        noise = f"noise {self.noise_std:.3g} ({'given' if self.noise_known else 'estimated'})"
        return (
            f"LearnedKernel({self.kernel!r}, {self.history.m} tasks, lambda by {self.rule}, "
            f"{noise}, gap {self.solution.gap:.1e})"
        )

    def __str__(self) -> str:
        count, p = self.active.size, self.kernel.base.p
        noise = f"noise {self.noise_std:.3g} ({'given' if self.noise_known else 'estimated'})"
        head = f"{count} of {p} base kernels learned from {self.history.m} tasks"
        if not count:
            share = lambda_max(self.problem, self.lam)
            head += (
                ": none stands out of the noise (the strongest reaches "
                f"{share:.0%} of what its lambda asks for)"
            )
        else:
            shown = ", ".join(self.names[:8]) + (", ..." if count > 8 else "")
            head += f": {shown}"
        gap = f"certified gap {self.solution.gap:.1e}"
        state = "" if self.solution.converged else " (NOT converged)"
        return f"{head}\n  lambda by {self.rule}, {noise}, {gap}{state}, weights {self.weights}"
