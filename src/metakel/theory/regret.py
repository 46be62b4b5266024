r"""The kinds of regret of Section 6, as functions of arrays.

Arrays have time on their last axis, so many runs are one array (runs, T). ``best`` is f(x*): one
number, or one per run. All values are to be maximised.

=====================  ====================================================  ======================
name                   at time t                                             can be negative
=====================  ====================================================  ======================
`instantaneous`        f(x*) - f(x_t)                                        no
`cumulative`           sum of `instantaneous` up to t                        no
`simple`               f(x*) - max of f(x_1), ..., f(x_t)                    no
`inference`            f(x*) - f(argmax of the mean mu_t)                    no
`inference_paper`      f(x*) - max of the mean mu_t                          yes
=====================  ====================================================  ======================

The paper calls the sum of the last one "cumulative inference regret". It compares the optimum with
a *predicted* value, so the regret is negative where the posterior mean is too optimistic. Report it
together with `inference`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array
from metakel.errors import InputError, ShapeError


def instantaneous(values: ArrayLike, best: ArrayLike) -> Array:
    """(..., T) loss of every chosen point against the optimum.

    Parameters
    ----------
    values : (..., T) array
        f at the chosen points, without noise.
    best : number or (...) array
        f(x*).
    """
    chosen, top = _checked(values, best)
    return top - chosen


def cumulative(values: ArrayLike, best: ArrayLike) -> Array:
    """(..., T) cumulative sums of `instantaneous` (Corollary 5.2); same parameters."""
    return np.cumsum(instantaneous(values, best), axis=-1)


def simple(values: ArrayLike, best: ArrayLike) -> Array:
    """(..., T) loss of the best point so far; same parameters as `instantaneous`."""
    chosen, top = _checked(values, best)
    return top - np.maximum.accumulate(chosen, axis=-1)


def inference(recommended: ArrayLike, best: ArrayLike) -> Array:
    """(..., T) loss of the maximiser of the posterior mean, if one stopped here.

    Parameters
    ----------
    recommended : (..., T) array
        f at the maximiser of the posterior mean at every time.
    best : number or (...) array
        f(x*).
    """
    return instantaneous(recommended, best)


def inference_paper(predicted: ArrayLike, best: ArrayLike) -> Array:
    """(..., T) the optimum minus the largest posterior mean, as the paper defines it.

    Parameters
    ----------
    predicted : (..., T) array
        The maximum of the posterior mean at every time.
    best : number or (...) array
        f(x*).
    """
    return instantaneous(predicted, best)


def _checked(values: ArrayLike, best: ArrayLike) -> tuple[Array, Array]:
    chosen = np.asarray(values, dtype=np.float64)
    top = np.asarray(best, dtype=np.float64)
    if chosen.ndim == 0:
        raise ShapeError(
            "regret: values is one number; expected an array with time on its last axis"
        )
    if top.shape not in ((), chosen.shape[:-1]):
        raise ShapeError(
            f"regret: best has shape {top.shape}; expected one number or {chosen.shape[:-1]}, one "
            f"for every run of values of shape {chosen.shape}"
        )
    if not (np.isfinite(chosen).all() and np.isfinite(top).all()):
        raise InputError("regret: values or best hold numbers that are not finite")
    return chosen, top[..., None]
