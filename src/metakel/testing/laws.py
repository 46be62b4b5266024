"""Laws of base kernels, models, acquisitions and optimizers, for people who write their own.

Functions raise an `AssertionError` where a law fails. The library tests its own parts with them. In
a test of your own::

    def test_my_kernel():
        check_kernel(my_dictionary, np.linspace(-1, 1, 20)[:, None])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metakel._arrays import Array, as_points, as_values
from metakel.kernels import Family, KernelDictionary, KernelSum
from metakel.optimize import Model, Optimizer, Record, Score
from metakel.optimize.outcomes import OutputScale, outcomes
from metakel.optimize.record import Trial


def law(holds: bool | np.bool_, message: str) -> None:
    """Raise where a law does not hold; not an ``assert``, which may be switched off."""
    if not holds:
        raise AssertionError(message)


def close(
    found: Any, expected: Any, what: str, *, rtol: float = 1e-12, atol: float = 1e-13
) -> None:
    """Compare two arrays; the message says where they differ most."""
    one, other = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    law(one.shape == other.shape, f"{what}: shapes {one.shape} and {other.shape}")
    if np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
        return
    worst = np.unravel_index(int(np.argmax(np.abs(one - other))), one.shape)
    place = tuple(int(i) for i in worst)
    raise AssertionError(f"{what}: {one[worst]:.9g} instead of {other[worst]:.9g} at {place}")


Functions = Mapping[str, Callable[..., Any]]


def check_kernel(
    base: KernelDictionary | Family, X: ArrayLike, *, functions: Functions | None = None
) -> None:
    """Check all laws that apply: derivatives where the kernels are smooth, features where finite.

    Parameters
    ----------
    base : KernelDictionary or Family
    X : (n, d0) array
        At least two points of the domain; about twenty random ones find most mistakes.
    functions : dict, optional
        Functions by their names, for kernels made by `from_features` or `from_gram`.
    """
    base = _as_dictionary(base)
    points = base.points(X)
    law(len(points) >= 2, "check_kernel needs at least two points")
    check_grams(base, points)
    if base.finite:
        check_features(base, points)
    if base.smooth:
        check_derivatives(base, points)
    check_select(base, points)
    check_storage(base, points, functions=functions)


def check_grams(base: KernelDictionary | Family, X: ArrayLike) -> None:
    """Gram matrices are symmetric and positive semi-definite, and their entries pure functions.

    An entry depends on its two points alone: not on the other points, nor on earlier calls.
    ``diags`` is the diagonal of ``grams``, and ``sup`` bounds it.
    """
    base = _as_dictionary(base)
    points = base.points(X)
    n, half = len(points), len(points) // 2
    law(all(isinstance(name, str) for name in base.names), "names holds something else than text")
    for name in ("dims", "sup"):
        found = len(getattr(base, name))
        law(found == base.p, f"{name} has {found} entries for {base.p} kernels")
    for family in base.families:
        given = points.copy()
        family.grams(given, given)
        what = "the points that it is given are changed"
        law(np.array_equal(points, given), f"kernel {family.names[0]}: {what}")
    K = base.grams(points)
    law(K.shape == (base.p, n, n), f"grams has shape {K.shape}; expected {(base.p, n, n)}")
    law(np.isfinite(K).all(), "grams holds values that are not finite")
    law(np.array_equal(K, base.grams(points)), "grams differs from one call to the next")
    _each_close(base, K, K.transpose(0, 2, 1), "k(x, z) differs from k(z, x)", rtol=1e-12)
    for name, part in zip(base.names, K, strict=True):
        smallest = float(np.linalg.eigvalsh(part).min())
        law(
            smallest > -1e-10 * max(1.0, float(np.trace(part))),
            f"kernel {name}: not positive semi-definite: its Gram matrix has the eigenvalue "
            f"{smallest:g}",
        )
    first, second = points[:half], points[half:]
    what = "k(x, z) depends on the other points"
    _each_close(base, base.grams(first, second), K[:, :half, half:], what)
    _each_close(base, base.grams(second), K[:, half:, half:], what)
    diagonals = base.diags(points)
    law(diagonals.shape == (base.p, n), f"diags has shape {diagonals.shape}; expected (p, n)")
    diagonal = np.diagonal(K, axis1=1, axis2=2)
    _each_close(base, diagonals, diagonal, "diags differs from the diagonal of grams")
    for name, sup, values in zip(base.names, base.sup, diagonals, strict=True):
        law(
            bool(np.isnan(sup)) or values.max() <= sup * (1 + 1e-12),
            f"kernel {name}: k(x, x) reaches {values.max():.9g}, above sup = {sup:.9g}",
        )


def check_features(base: KernelDictionary | Family, X: ArrayLike) -> None:
    """The features of each kernel give its Gram matrix: k_j(x, z) = phi_j(x)'phi_j(z)."""
    base = _as_dictionary(base)
    points = base.points(X)
    F = base.features(points)
    shape = (len(points), sum(dim or 0 for dim in base.dims))
    law(F.shape == shape, f"features has shape {F.shape}; expected {shape} from dims")
    law(F.T.flags.c_contiguous, "features is not contiguous by column")
    products = np.array([F[:, group] @ F[:, group].T for group in base.groups])
    _each_close(base, products, base.grams(points), "features do not give the Gram matrix")


def check_derivatives(
    base: KernelDictionary | Family, X: ArrayLike, *, step: float = 1e-6, atol: float = 1e-6
) -> None:
    """Derivatives of every kernel, and of its features where it has some, match differences.

    Central differences with this step, up to a relative error of 1e-5.
    """
    base = _as_dictionary(base)
    points = _inside(base, base.points(X), 2 * step)
    for j in range(base.p):
        check_gradient(KernelSum.uniform(base, [j]), points, points, step=step, atol=atol)
    if not base.finite:
        return
    jacobian = base.jacobian(points)
    slope = _differences(base.features, points, step)
    close(jacobian, slope, "jacobian differs from the slope of features", rtol=1e-5, atol=atol)
    both = base.features_and_jacobian(points)
    for one, alone in zip(both, (base.features(points), jacobian), strict=True):
        what = "features_and_jacobian differs from features or jacobian"
        close(one, alone, what, rtol=1e-10, atol=1e-11)


def check_gradient(
    kernel: KernelSum, X: ArrayLike, Z: ArrayLike, *, step: float = 1e-6, atol: float = 1e-6
) -> None:
    """Derivatives of k(x, z) in x match central differences, for all rows x of X and z of Z."""
    points, others = (_inside(kernel.base, kernel.base.points(A), 2 * step) for A in (X, Z))
    gradients = np.array([kernel.gradient(x, others) for x in points])
    slope = _differences(lambda A: kernel(A, others), points, step)
    what = f"{', '.join(kernel.names)}: the derivative of k(x, z) in x differs from its slope"
    close(gradients, slope, what, rtol=1e-5, atol=atol)


def check_select(
    base: KernelDictionary | Family, X: ArrayLike, indices: Sequence[int] | None = None
) -> None:
    """Selected kernels are the same kernels, in the order asked for (by default all, reversed)."""
    base = _as_dictionary(base)
    chosen = list(reversed(range(base.p))) if indices is None else list(indices)
    for selection in (chosen, chosen[:1]):
        selected = base.select(selection)
        law(selected.d0 == base.d0, f"select changes d0 from {base.d0} to {selected.d0}")
        for name in ("names", "dims"):
            expected = tuple(getattr(base, name)[j] for j in selection)
            found = getattr(selected, name)
            law(found == expected, f"select gives {name} {found}; expected {expected}")
        close(selected.sup, base.sup[selection], "select changes sup")
        what = "select changes the kernels or their order"
        _each_close(selected, selected.grams(X), base.grams(X)[selection], what, rtol=1e-12)


def check_storage(
    base: KernelDictionary | Family, X: ArrayLike, *, functions: Functions | None = None
) -> None:
    """What JSON stores gives the same kernels back, to the last bit.

    ``functions`` are the functions of `from_features` and `from_gram` by their names.
    """
    base = _as_dictionary(base)
    kernel = KernelSum.uniform(base, weight=1.0)
    text = kernel.to_json()
    again = KernelSum.from_json(text, functions)
    law(again.to_json() == text, "what is stored differs after it was stored and loaded once")
    for name in ("names", "dims", "d0"):
        found, expected = getattr(again.base, name), getattr(base, name)
        law(found == expected, f"storing changes {name} from {expected} to {found}")
    law(np.array_equal(again.base.sup, base.sup, equal_nan=True), "storing changes sup")
    law(np.array_equal(again.base.grams(X), base.grams(X)), "storing changes the kernels")


def _as_dictionary(base: KernelDictionary | Family) -> KernelDictionary:
    return base if isinstance(base, KernelDictionary) else KernelDictionary((base,))


def _each_close(
    base: KernelDictionary, found: Array, expected: Array, what: str, *, rtol: float = 1e-10
) -> None:
    """Compare one array per kernel; the message names the kernel."""
    for name, one, other in zip(base.names, found, expected, strict=True):
        close(one, other, f"kernel {name}: {what}", rtol=rtol, atol=rtol / 10)


def _inside(base: KernelDictionary, points: Array, margin: float) -> Array:
    """The points, moved away from the border so that differences stay in the domain."""
    for low, high in (family.domain for family in base.families if family.domain is not None):
        points = np.clip(points, low + margin, high - margin)
    return points


def _differences(function: Callable[[Array], Array], X: Array, step: float) -> Array:
    """(n, k, d0) central differences of a function with values (n, k)."""
    slopes = []
    for i in range(X.shape[1]):
        shift = step * np.eye(X.shape[1])[i]
        slopes.append((function(X + shift) - function(X - shift)) / (2 * step))
    return np.stack(slopes, axis=2)


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
