"""Learning the kernel from past tasks (Section 4): history and base kernels in, `Learned` out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metakel.errors import InputError, ShapeError
from metakel.grouplasso import Problem, Solution, lambda_max, solve, solve_square_root
from metakel.grouplasso.working_set import Progress
from metakel.kernels import Dictionary, KernelSum
from metakel.refit import Fittable, noise_left, refitted_weights
from metakel.regularisation import choose_lambda, pivotal_lambda
from metakel.regularisation.spectrum import NoiseProblem
from metakel.screening import Screening, chi_square_screening
from metakel.tasks import Array, History

Weights = Literal["uniform", "eta"]
Scale = Literal["sum", "c1", "raw"]
Loss = Literal["points", "tasks"]


class Elsewhere(Fittable, NoiseProblem, Protocol):
    """The problem of tasks that are elsewhere; ``start`` are weights x = eta / lambda, if known."""

    start: Array | None


class Scanned(Protocol):
    """A history whose tasks are elsewhere: `metakel.distributed.Scan`."""

    @property
    def m(self) -> int: ...
    @property
    def d0(self) -> int: ...
    @property
    def total(self) -> int: ...
    def as_problem(self, base: Dictionary, loss: Loss = "points") -> Elsewhere: ...
    def joined(
        self, new: Self | History, base: Dictionary, loss: Loss
    ) -> tuple[Self, Elsewhere]: ...


@dataclass(frozen=True, eq=False)
class How:
    """The arguments of `learn_kernel`, to learn again in the same way."""

    noise_std: float | None
    lam: str | ArrayLike
    delta: float
    weights: Weights
    scale: Scale
    beta_min: float | None
    refit: bool
    loss: Loss
    tol: float


@dataclass(frozen=True, eq=False)
class Learned:
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
        Probability with which the noise event behind ``lam`` may fail; 1 where the caller chose
        lam by hand, which nothing vouches for.
    """

    kernel: KernelSum
    solution: Solution
    lam: Array
    noise_std: float
    noise_known: bool
    delta: float
    rule: str
    weights: Weights
    history: History | Scanned = field(repr=False)
    problem: Problem | Elsewhere = field(repr=False)
    how: How = field(repr=False)

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
        new: History | Scanned | Iterable[tuple[ArrayLike, ArrayLike]],
        *,
        rng: np.random.Generator | None = None,
        progress: Progress | None = None,
    ) -> Learned:
        """Learn from more tasks in the same way, starting from here.

        The answer is that of learning from all tasks together, to the same certified gap; lambda
        is chosen for all of them. ``new`` is a history or pairs (X, y).
        """
        base, loss = self.kernel.base, self.how.loss
        if isinstance(new, Iterable) and not isinstance(new, History):
            new = History.from_pairs(new)
        history: History | Scanned
        problem: Problem | Elsewhere
        if not isinstance(self.history, History):
            history, problem = self.history.joined(new, base, loss)
        elif isinstance(new, History):
            history = replace(self.history, tasks=(*self.history.tasks, *new.tasks))
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
        return _learn(history, problem, base, self.how, start, rng, progress)

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
        return "\n".join(lines)

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


def learn_kernel(
    history: History | Scanned,
    base: Dictionary,
    *,
    noise_std: float | None = None,
    lam: str | ArrayLike = "self-normalised",
    delta: float = 0.1,
    weights: Weights = "uniform",
    scale: Scale = "sum",
    beta_min: float | None = None,
    refit: bool = False,
    loss: Loss = "points",
    tol: float = 1e-10,
    rng: np.random.Generator | None = None,
    progress: Progress | None = None,
) -> Learned:
    r"""Meta-KeL: the sparse sum of base kernels that explains all tasks (Proposition 4.1).

    Parameters
    ----------
    history : History
        Or a scan of tasks on disk (`History.scan`), which are never held together.
    base : Dictionary
        Base kernels k_1 ... k_p (Eq. 5).
    noise_std : float, optional
        Noise level of the observations. None estimates it with the group square-root lasso.
    lam : str, float or (p,) array
        A rule of `metakel.regularisation` or the value itself. Without ``noise_std`` the default
        rule becomes its pivotal form, "square-root".
    delta : float
        Probability with which the noise event that ``lam`` guards against may fail.
    weights : "uniform" or "eta"
        Weight 1 on every selected kernel, which gives the sharpest certified confidence sets
        (``docs/reading-the-paper.md``), or the paper's eta of Proposition 4.1.
    scale : "sum", "c1" or "raw"
        With "eta": divided by their sum, by ``beta_min`` (Eq. 9; the smallest selected eta where
        it is not given), or as they are.
    refit : bool
        With "eta": weights from a least-squares refit, free of the lasso's shrinkage.
    loss : "points" or "tasks"
        For tasks of unequal size: every observation counts alike (default), or every task does.
    rng : Generator, optional
        For the rules that simulate.
    progress : callable(round, gap), optional
    """
    _check_arguments(history, base, noise_std, weights, scale, beta_min)
    problem = as_problem(history, base, loss)
    start = None if isinstance(problem, Problem) else problem.start
    how = How(noise_std, lam, delta, weights, scale, beta_min, refit, loss, tol)
    return _learn(history, problem, base, how, start, rng, progress)


def _learn(
    history: History | Scanned,
    problem: Problem | Elsewhere,
    base: Dictionary,
    how: How,
    start: Array | None,
    rng: np.random.Generator | None,
    progress: Progress | None,
) -> Learned:
    """Choose lambda, solve from weights x = ``start`` = eta / lambda, make the kernel."""
    noise_std, lam, delta = how.noise_std, how.lam, how.delta
    if noise_std is None and isinstance(lam, str):
        if lam not in ("self-normalised", "square-root"):
            raise InputError(
                f"lambda rule {lam!r} needs noise_std; without it only 'square-root' is pivotal"
            )
        rule = "square-root"
        pivotal = pivotal_lambda(problem, delta=delta, rng=rng)
        solution, _ = solve_square_root(
            problem, pivotal, tol=how.tol, start=start, progress=progress
        )
        noise = noise_left(problem, solution)
    else:
        rule = lam if isinstance(lam, str) else "hand"
        chosen = choose_lambda(
            lam, problem, noise_std=noise_std, delta=delta, sup=base.sup, rng=rng
        )
        eta = None if start is None else start * chosen
        solution = solve(problem, chosen, tol=how.tol, start=eta, progress=progress)
        noise = noise_left(problem, solution) if noise_std is None else noise_std
    raw = solution.eta
    if how.refit and solution.active.size:
        raw = refitted_weights(problem, solution.active, noise)
    return Learned(
        kernel=_kernel(base, solution, raw, how.weights, how.scale, how.beta_min),
        solution=solution,
        lam=solution.lam,
        noise_std=float(noise),
        noise_known=noise_std is not None,
        delta=delta if rule != "hand" else 1.0,
        rule=rule,
        weights=how.weights,
        history=history,
        problem=problem,
        how=how,
    )


def as_problem(
    history: History | Scanned, base: Dictionary, loss: Loss = "points"
) -> Problem | Elsewhere:
    """Eq. 8 for a history: features where every base kernel has them, Gram matrices otherwise."""
    if not isinstance(history, History):
        return history.as_problem(base, loss)
    values = [task.y for task in history]
    if not base.finite:
        return Problem.from_grams([base.grams(task.X) for task in history], values, loss=loss)
    features = base.features(np.concatenate([task.X for task in history]))  # (N, d)
    if (history.sizes == history.sizes[0]).all():
        m, n = history.m, int(history.sizes[0])
        stacked = features.T.reshape(base.dim, m, n).transpose(1, 2, 0)  # a view
        return Problem.from_arrays(stacked, np.array(values), base.groups)
    ends = np.cumsum(history.sizes)
    parts = [features[stop - n : stop] for stop, n in zip(ends, history.sizes, strict=True)]
    return Problem.from_tasks(parts, values, base.groups, loss=loss)


def _kernel(
    base: Dictionary,
    solution: Solution,
    eta: Array,
    weights: Weights,
    scale: Scale,
    beta_min: float | None,
) -> KernelSum:
    if weights == "uniform" or not solution.active.size:
        return KernelSum.uniform(base, active=solution.active)
    if scale == "sum":
        return KernelSum(base, eta / eta.sum())
    if scale == "c1":
        return KernelSum(base, eta / (beta_min or eta[eta > 0].min()))  # Eq. 9
    return KernelSum(base, eta)


def _check_arguments(
    history: History | Scanned,
    base: Dictionary,
    noise_std: float | None,
    weights: str,
    scale: str,
    beta_min: float | None,
) -> None:
    if not isinstance(history, History) and not hasattr(history, "as_problem"):
        raise InputError(f"history is a {type(history).__name__}; make one by History.from_pairs")
    if not isinstance(base, Dictionary) or base.p == 0:
        raise InputError("base must be a dictionary of at least one base kernel, e.g. legendre(20)")
    if base.d0 not in (None, history.d0):
        raise ShapeError(f"the base kernels take {base.d0} inputs but the tasks have {history.d0}")
    if noise_std is not None and not (np.isfinite(noise_std) and noise_std > 0):
        raise InputError(f"noise_std is {noise_std}; expected a positive number, or None")
    if weights not in ("uniform", "eta"):
        raise InputError(f"weights is {weights!r}; expected 'uniform' or 'eta'")
    if scale not in ("sum", "c1", "raw"):
        raise InputError(f"scale is {scale!r}; expected 'sum', 'c1' or 'raw'")
    if beta_min is not None and not beta_min > 0:
        raise InputError(f"beta_min is {beta_min}; expected a positive number")
