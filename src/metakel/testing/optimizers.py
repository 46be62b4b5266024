"""The contract of models, acquisitions and optimizers, for people who write their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points, as_values
from metakel.optimize import Model, Optimizer, Record, Score
from metakel.optimize.outcomes import OutputScale, outcomes
from metakel.optimize.record import Trial
from metakel.testing.kernels import close, law


def check_model(model: Model, X: ArrayLike, y: ArrayLike, Z: ArrayLike) -> None:
    """All laws that an optimizer relies on.

    Parameters
    ----------
    model : Model
        Before any observation.
    X, y : (n, d0) and (n,) arrays
        Observations to try it on, at least three of them at different points.
    Z : (k, d0) array
        Points to ask about.
    """
    points, asked = as_points(X, "check_model"), as_points(Z, "check_model")
    values = as_values(y, len(points), "check_model")
    _check_predictions(model, points, values, asked)
    _check_order(model, points, values, asked)
    _check_fantasies(model, points, values, asked)
    check_score(model.upper_bound(), asked)
    observed = _observe(model, points, values)
    check_score(observed.upper_bound(), asked)
    check_score(observed.expected_improvement(float(values.max())), asked)


def check_score(score: Score, Z: ArrayLike) -> None:
    """A score is finite, the same every time, and its gradient is its derivative."""
    points = as_points(Z, "check_score")
    values = score.values(points)
    law(values.shape == (len(points),), f"values have shape {values.shape}, not ({len(points)},)")
    law(not np.isnan(values).any(), "a score is nan")
    close(score.values(points.copy()), values, "scores of the same points differ")
    if score.gradient is None:
        return
    again, slopes = score.gradient(points)
    # A climb may follow a surrogate that is this close; what it finds is scored by the values.
    close(again, values, "values beside the gradient differ from the values", rtol=2e-2)
    law(slopes.shape == points.shape, f"gradients have shape {slopes.shape}, not {points.shape}")
    step = 1e-6
    for i, e in enumerate(np.eye(points.shape[1])):
        ahead, behind = (score.gradient(points + s * step * e)[0] for s in (1, -1))
        numeric = (ahead - behind) / (2 * step)
        size = float(np.abs(slopes).max()) or 1.0
        off = np.median(np.abs(numeric - slopes[:, i])) / size
        law(off < 1e-2, f"the gradient in input {i} is off by {off:.2g} of its size")


def check_optimizer(make: Callable[[], Optimizer], value: Callable[[Any], float]) -> None:
    """An optimizer is a function of its record.

    Parameters
    ----------
    make : callable
        Gives a new optimizer, the same every time.
    value : point -> float
        The objective.
    """
    one, other = make(), make()
    for _ in range(4):
        x, z = one.ask(), other.ask()
        _same_point(one, x, z, "two optimizers made alike ask for different points")
        one.tell(x, value(x))
        other.tell(z, value(z))
    _check_failures(one)
    _check_replay(make(), one)
    _check_late_results(make, value)


def _observe(model: Model, X: Array, y: Array) -> Model:
    trials = [
        Trial(i, x, x).with_result(float(v)) for i, (x, v) in enumerate(zip(X, y, strict=True))
    ]
    record = Record(tuple(trials), tuple((i,) for i in range(len(trials))))
    return model.given(outcomes(record, d0=X.shape[1], scale=OutputScale()))


def _check_predictions(model: Model, X: Array, y: Array, Z: Array) -> None:
    for state, word in ((model, "before"), (_observe(model, X, y), "after")):
        mean, sd = state.predict(Z)
        law(mean.shape == sd.shape == (len(Z),), f"predict has the wrong shape {word} observations")
        law(np.isfinite(mean).all() and np.isfinite(sd).all(), f"predict is not finite {word} them")
        law((sd >= 0).all(), "a standard deviation is negative")
    before, after = model.predict(X)[1], _observe(model, X, y).predict(X)[1]
    law((after < before).all(), "observing a point does not make the model surer there")


def _check_order(model: Model, X: Array, y: Array, Z: Array) -> None:
    before = model.predict(Z)
    forward = _observe(model, X, y).predict(Z)
    backward = _observe(model, X[::-1], y[::-1]).predict(Z)
    close(backward, forward, "the order of the observations matters", rtol=1e-6, atol=1e-9)
    close(model.predict(Z), before, "conditioning has changed the model itself")
    partial = _observe(model, X[:-1], y[:-1])
    close(_observe(partial, X, y).predict(Z), forward, "one by one differs from all at once")
    close(_observe(partial, X, y).predict(Z), forward, "a late observation is taken in twice")


def _check_fantasies(model: Model, X: Array, y: Array, Z: Array) -> None:
    observed = _observe(model, X, y)
    before = observed.predict(Z)
    evidence, weight = observed.log_evidence, observed.transfer_weight
    ahead = observed.with_fantasies(Z[:1])
    law((ahead.predict(Z[:1])[1] < before[1][:1]).all(), "a fantasy does not make the model surer")
    law(ahead.log_evidence == evidence, "a fantasy changes the evidence")
    law(ahead.transfer_weight == weight, "a fantasy changes the weight of the history")
    close(observed.predict(Z), before, "with_fantasies has changed the model itself")


def _check_failures(optimizer: Optimizer) -> None:
    trust, evidence, t = optimizer.trust, optimizer.model.log_evidence, optimizer.t
    x = optimizer.ask()
    optimizer.tell(x, failed=True)
    law(optimizer.t == t, "a failed run counts as a value")
    law(optimizer.trust == trust, "a failed run changes the trust")
    law(optimizer.model.log_evidence == evidence, "a failed run changes the evidence")


def _check_replay(fresh: Optimizer, run: Optimizer) -> None:
    fresh.record = run.record
    _same_point(run, fresh.peek(), run.peek(), "the same record gives another suggestion")
    law(fresh.trust == run.trust, "the same record gives another trust")


def _check_late_results(make: Callable[[], Optimizer], value: Callable[[Any], float]) -> None:
    one, other = make(), make()
    batch = one.ask_batch(3)
    other.ask_batch(3)
    for x in batch:
        one.tell(x, value(x))
    for x in reversed(batch):
        other.tell(x, value(x))
    message = "the order in which results arrive changes the suggestion"
    _same_point(one, one.peek(), other.peek(), message)


def _same_point(optimizer: Optimizer, x: Any, z: Any, message: str) -> None:
    encode = optimizer.domain.encode
    close(encode([x], "check")[0], encode([z], "check")[0], message, atol=1e-6)
