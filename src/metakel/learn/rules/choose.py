"""lambda by name, by number, or by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError
from metakel.learn.rules.analytic import chernoff, dimension_free, hkz, paper, self_normalised
from metakel.learn.rules.simulated import monte_carlo
from metakel.learn.rules.spectrum import NoiseProblem, check_delta

RULES = ("self-normalised", "hkz", "dimension-free", "chernoff", "monte-carlo", "paper")


def choose_lambda(
    rule: str | ArrayLike,
    problem: NoiseProblem,
    *,
    noise_std: float | None,
    delta: float,
    sup: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 999,
) -> Array:
    """One lambda per group (Theorem 4.3): by a rule of this module, or as given.

    Parameters
    ----------
    rule : str, number or (p,) array
        A name of the table above; or the value itself, for all groups or for each.
    problem : NoiseProblem
    noise_std : float or None
        Standard deviation (or sub-Gaussian proxy) of the noise; named rules need it.
    delta : float
        Probability with which the event A may fail.
    sup : (p,) array, optional
        Largest ``k_j(x, x)`` over the domain; 1 where unknown (None or NaN), as in Section 3.
    rng : Generator, optional
        Only for "monte-carlo".
    draws : int
        Only for "monte-carlo".

    Returns
    -------
    (p,) array, positive
        A group without any feature (all its kernel matrices are zero) can never be selected;
        where a rule asks for nothing there, it gets the largest lambda of the other groups.
    """
    if not isinstance(rule, str):
        return _given(rule, problem.p)
    if rule not in RULES:
        raise InputError(
            f"unknown lambda rule {rule!r}; known rules: {', '.join(RULES)}; 'square-root' is "
            "one of learn_kernel, and pivotal_lambda its lambda"
        )
    if noise_std is None or not (np.isfinite(noise_std) and noise_std > 0):
        raise InputError(f"lambda rule {rule!r}: noise_std is {noise_std}; expected a number > 0")
    check_delta(delta)
    level = {"noise_std": noise_std, "delta": delta}
    if rule == "self-normalised":
        return self_normalised(problem, **level, sup=sup)
    if rule == "hkz":
        return hkz(problem, **level)
    if rule == "dimension-free":
        return dimension_free(problem, **level, sup=sup)
    if rule == "chernoff":
        return chernoff(problem, **level)
    if rule == "paper":
        return paper(problem, **level)
    if rng is None:
        raise InputError("lambda rule 'monte-carlo' needs a Generator: pass rng=")
    return monte_carlo(problem, **level, rng=rng, draws=draws)


def _given(rule: ArrayLike | None, p: int) -> Array:
    try:
        lam = np.array(rule, dtype=float) if rule is not None else None
    except (TypeError, ValueError):
        lam = None
    if lam is None:
        raise InputError(
            f"lam is {rule!r}; expected a number, {p} numbers, or one of {', '.join(RULES)}"
        )
    if lam.shape not in ((), (p,)):
        raise ShapeError(
            f"lam has shape {lam.shape}; expected one number or one per kernel, ({p},)"
        )
    if not (np.isfinite(lam).all() and (lam > 0).all()):
        bad = lam[~(np.isfinite(lam) & (lam > 0))].flat[0]
        raise InputError(f"lam holds {bad}; expected finite numbers > 0")
    return np.full(p, lam) if lam.ndim == 0 else lam
