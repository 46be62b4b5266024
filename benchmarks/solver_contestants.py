"""How each solver is called: everything it needs is built before the clock starts.

The rivals see the block-diagonal design of Figure 7 with columns ordered by group, then task, and
minimise half the mean square, so ``alpha = lam / 2``. Nobody fits an intercept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.solver_problems import Array, Instance, beta_of_weights

# A fit takes a tolerance; what it returns is read into coefficients after the clock has stopped.
Fit = Callable[[float], Any]
Read = Callable[[Any], list[Array]]  # one (m, d) array per lambda


def block_design(instance: Instance) -> Any:
    """The block-diagonal design in compressed columns, (mn, md)."""
    from scipy.sparse import csc_matrix

    m, d, n = instance.memory.shape
    blocks = instance.memory.reshape(m, instance.p, instance.dim, n).transpose(1, 0, 2, 3)
    rows = np.arange(m * n, dtype=np.int32).reshape(1, m, 1, n)
    indices = np.broadcast_to(rows, blocks.shape).ravel()
    starts = np.arange(m * d + 1, dtype=np.int32) * np.int32(n)
    return csc_matrix((blocks.ravel(), indices, starts), shape=(m * n, m * d))


def from_columns(instance: Instance, coefficients: Array) -> Array:
    """Coefficients ordered by group, then task, as an (m, d) array."""
    m, d, _ = instance.memory.shape
    by_group = np.asarray(coefficients).reshape(instance.p, m, instance.dim)
    return by_group.transpose(1, 0, 2).reshape(m, d)


def metakel(instance: Instance) -> tuple[Fit, Read]:
    """Ours; the time includes the construction of the problem and of its Gram matrices."""
    from metakel.grouplasso import Problem, path, solve

    Phi, y, groups, lams = instance.Phi, instance.y, instance.groups, instance.lams
    grams = list(instance.grams()) if instance.kernel_mode else []
    values = list(y)

    def fit(tol: float) -> Any:
        if instance.kernel_mode:
            return [solve(Problem.from_grams(grams, values), lams[0], tol=tol)]
        problem = Problem.from_arrays(Phi, y, groups)
        if len(lams) == 1:
            return [solve(problem, lams[0], tol=tol)]
        return path(problem, lams, tol=tol)

    def read(solutions: Any) -> list[Array]:
        if instance.kernel_mode:
            return [beta_of_weights(instance, s.eta, instance.lam) for s in solutions]
        return [s.beta for s in solutions]

    return fit, read


def celer(instance: Instance) -> tuple[Fit, Read]:
    """celer on the dense design (its sparse code was slower on the paper's problem)."""
    from celer import GroupLasso

    design = np.asfortranarray(block_design(instance).toarray())
    y = instance.y.ravel()
    size = instance.y.shape[0] * instance.dim

    def fit(tol: float) -> Any:
        options = {"fit_intercept": False, "max_iter": 1000, "tol": tol}
        return GroupLasso(groups=size, alpha=instance.lam / 2, **options).fit(design, y)

    return fit, lambda model: [from_columns(instance, model.coef_)]


def skglm(instance: Instance) -> tuple[Fit, Read]:
    """skglm's block coordinate descent on the sparse design; stops on the KKT violation."""
    from skglm.datafits import QuadraticGroup
    from skglm.penalties import WeightedGroupL2
    from skglm.solvers import GroupBCD
    from skglm.utils.jit_compilation import compiled_clone

    design, y = block_design(instance), instance.y.ravel()
    columns = design.shape[1]
    starts = np.linspace(0, columns, instance.p + 1).astype(np.int32)
    order = np.arange(columns, dtype=np.int32)
    penalty = WeightedGroupL2(instance.lam / 2, np.ones(instance.p), starts, order)
    # Compiled before the clock starts, which is kind to skglm; from 0.6 on it would refuse this.
    warnings.filterwarnings("ignore", message="Passing in a compiled")
    datafit, penalty = compiled_clone(QuadraticGroup(starts, order)), compiled_clone(penalty)

    def fit(tol: float) -> Any:
        solver = GroupBCD(max_iter=10_000, max_epochs=100, tol=tol, fit_intercept=False)
        return solver.solve(design, y, datafit, penalty)

    return fit, lambda answer: [from_columns(instance, answer[0])]


def adelie(instance: Instance) -> tuple[Fit, Read]:
    """adelie on the sparse design, over the whole path at once."""
    import adelie

    m = instance.y.shape[0]
    sparse = block_design(instance)
    design = adelie.matrix.sparse(sparse, method="naive", n_threads=1)
    glm = adelie.glm.gaussian(instance.y.ravel())
    options = {
        "groups": np.arange(instance.p) * m * instance.dim,
        "penalty": np.ones(instance.p),
        "lmda_path": instance.lams / 2,
        "intercept": False,
        "early_exit": False,
        "progress_bar": False,
        "max_iters": 10_000_000,
        "n_threads": 1,
    }

    def fit(tol: float) -> Any:
        return adelie.grpnet(design, glm, tol=tol, **options)

    def read(state: Any) -> list[Array]:
        betas = state.betas.toarray()
        if len(betas) != len(instance.lams):
            warnings.warn(f"adelie solved {len(betas)} of {len(instance.lams)}", stacklevel=1)
        return [from_columns(instance, b) for b in betas]

    return fit, read


def gram(instance: Instance) -> tuple[Fit, Read]:
    """Not a solver: one full batched Gram of the features, the yardstick of problem c."""
    return lambda _: np.matmul(instance.memory, instance.Phi), lambda _: []


CONTESTANTS = {"gram": gram, "metakel": metakel, "celer": celer, "skglm": skglm, "adelie": adelie}

# Tolerances from loose to tight; the first that certifies the target gap is the one raced.
LADDERS = {
    "gram": [0.0],
    "metakel": [1e-10],
    "celer": [1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14],
    "skglm": [1e-8, 1e-10, 1e-11, 1e-12],
    "adelie": [1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23, 1e-24, 1e-25, 1e-26],
}
