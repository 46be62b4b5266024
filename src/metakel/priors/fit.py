"""From standardised tasks to a shape: the steps of learning a prior, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metakel._arrays import Array
from metakel.gp.task_gp import TaskGP
from metakel.kernels.matern52 import fit_shared
from metakel.kernels.nystrom import NystromFeatures, choose_basis, spread_rows
from metakel.priors.heldout import HeldOut, hold_out
from metakel.priors.moments import Coefficients, coefficients, moments
from metakel.priors.selection import principal_functions, select, selection_problem
from metakel.priors.standardize import StandardTasks

FIT_TASKS, FIT_ROWS = 20, 50


@dataclass(frozen=True, eq=False)
class Compared:
    """Tasks in common features: F_s (n_s, r) and what each says about its coefficients."""

    basis: NystromFeatures
    F: Sequence[Array]
    found: Coefficients


def compare(tasks: StandardTasks) -> Compared:
    """The shared kernel and its features, from every other task, so that the rest can judge.

    A handful of numbers are fitted, for which half of the tasks are plenty; the others stay
    untouched for the norm bound.
    """
    teachers = list(range(0, tasks.m, 2)) if tasks.m >= 4 else list(range(tasks.m))
    fitted = spread_rows(np.array(teachers), FIT_TASKS)
    rows = [spread_rows(np.arange(len(tasks.z[s])), FIT_ROWS) for s in fitted]
    shared = fit_shared(
        [tasks.X[s][i] for s, i in zip(fitted, rows, strict=True)],
        [tasks.z[s][i] for s, i in zip(fitted, rows, strict=True)],
    )
    basis = choose_basis(shared, np.concatenate([tasks.X[s] for s in teachers]))
    F = [basis.features(X) for X in tasks.X]
    return Compared(basis, F, coefficients(F, tasks.z, shared.noise))


def check(tasks: StandardTasks, compared: Compared, *, mean: bool) -> HeldOut:
    """Held-out tasks: what to choose, and whether the history helps."""
    return hold_out(tasks, compared.basis, compared.F, compared.found, mean=mean)


def learn_shape(
    tasks: StandardTasks,
    compared: Compared,
    teachers: Sequence[int],
    *,
    lam: str | float,
    share: float,
    floor: float,
    mean: bool,
) -> TaskGP:
    """Mean, principal functions kept by the group lasso, their refitted second moments."""
    known = moments(compared.found, teachers, mean=mean)
    functions = principal_functions(known)
    problem = selection_problem(
        functions, known, [compared.F[s] for s in teachers], [tasks.z[s] for s in teachers]
    )
    kept = functions.keep(select(problem, lam, share))
    return TaskGP(compared.basis, known.mu, kept.directions, kept.eta, floor)
