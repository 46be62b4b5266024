"""Each published law finds the kernel that breaks it, and a new family needs only its class."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields

import numpy as np
import pytest

from metakel.kernels import KernelDictionary, KernelSum, from_gram
from metakel.kernels.base import FeatureFamily, GramFamily
from metakel.kernels.nystrom import Eigenfunctions, choose_basis
from metakel.kernels.stationary import Matern52ARD
from metakel.testing import (
    check_derivatives,
    check_features,
    check_grams,
    check_kernel,
    check_select,
    check_storage,
)

X = np.random.default_rng(0).uniform(-1, 1, (12, 2))


@dataclass(frozen=True, eq=False)
class Waves(FeatureFamily):
    """A correct family: cos(w x_0) + x_1, one feature per frequency."""

    rates: tuple[float, ...]
    bound = 4.0
    kind = "test-waves"

    names = property(lambda self: tuple(f"wave {w:g}" for w in self.rates))
    dims = property(lambda self: (1,) * len(self.rates))
    d0 = property(lambda self: 2)
    sup = property(lambda self: np.full(self.p, self.bound))
    smooth = property(lambda self: True)

    def write_features(self, X, out):
        out[:] = np.cos(np.multiply.outer(self.rates, X[:, 0])) + X[:, 1]

    def write_jacobian(self, X, out):
        rates = np.array(self.rates)[:, None]
        out[:, 0] = -rates * np.sin(rates * X[:, 0])
        out[:, 1] = 1.0

    def select(self, indices):
        return type(self)(tuple(self.rates[i] for i in indices))

    def parameters(self):
        return {"rates": list(self.rates)}

    @classmethod
    def from_parameters(cls, parameters, functions):
        return cls(tuple(parameters["rates"]))


@dataclass(frozen=True, eq=False)
class Bell(GramFamily):
    """A correct family without features: exp(-|x - z|^2 / 2)."""

    kind = "test-bell"

    names = property(lambda self: ("bell",))
    d0 = property(lambda self: 2)
    sup = property(lambda self: np.ones(1))
    smooth = property(lambda self: True)

    def each_gram(self, X, Z):
        yield np.exp(-0.5 * ((X[:, None] - Z) ** 2).sum(axis=2))

    def each_gradient(self, X, Z):
        K = next(self.each_gram(X, Z))
        yield (Z - X[:, None]) * K[:, :, None]

    def diags(self, X):
        return np.ones((1, len(X)))

    def select(self, indices):
        return self

    def parameters(self):
        return {}

    @classmethod
    def from_parameters(cls, parameters, functions):
        return cls()


WAVES, BELL = Waves((1.0, 2.5)), Bell()


@pytest.mark.parametrize("family", [WAVES, BELL], ids=["features", "grams"])
def test_a_new_family_needs_only_its_class(family, tmp_path):
    check_kernel(family, X)
    check_kernel(KernelDictionary((family, BELL, WAVES)), X)
    kernel = KernelSum.uniform(KernelDictionary((family,)))
    kernel.save(tmp_path / "kernel.json")
    np.testing.assert_array_equal(KernelSum.load(tmp_path / "kernel.json")(X), kernel(X))


def test_principal_functions_of_past_tasks_obey_the_laws():
    basis = choose_basis(Matern52ARD.typical(2), X, 8)
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(basis.r, 3))
    check_kernel(Eigenfunctions(basis, rng.normal(size=3), directions, ("a", "b", "c")), X)


def broken(family, **changes):
    """The family with some of its methods or properties replaced."""
    kind = type("Broken", (type(family),), {**changes, "kind": f"test-broken-{len(KINDS)}"})
    KINDS.append(kind)
    return kind(*(getattr(family, field.name) for field in fields(family)))


KINDS: list[type] = []


def gram(function):
    return lambda self, X, Z: iter([function(X, Z)])


def bell(X, Z):
    return next(BELL.each_gram(X, Z))


def shifted(X):
    X += 1e-3
    return X


def write_both(self, X, features, jacobian):
    self.write_features(X, features)
    jacobian[:] = 0.0


def changing(self, X, out):
    Waves.write_features(self, shifted(X), out)


calls = iter(range(10**6))


def scale_rates(family, rates, factor):
    object.__setattr__(family, "rates", tuple(factor * rate for rate in rates))


BROKEN = {
    "not symmetric": (
        check_grams,
        lambda: broken(BELL, each_gram=gram(lambda X, Z: bell(X, Z) + 0.1 * X[:, :1])),
        r"kernel bell: k\(x, z\) differs from k\(z, x\)",
    ),
    "indefinite": (
        check_grams,
        lambda: broken(BELL, each_gram=gram(lambda X, Z: -bell(X, Z))),
        "kernel bell: not positive semi-definite.*eigenvalue -",
    ),
    "not finite": (
        check_grams,
        lambda: broken(BELL, each_gram=gram(lambda X, Z: np.full((len(X), len(Z)), np.nan))),
        "not finite",
    ),
    "depends on the other points": (
        check_grams,
        lambda: broken(BELL, each_gram=gram(lambda X, Z: bell(X, Z) / len(Z))),
        "depends on the other points",
    ),
    "wrong diagonal": (
        check_grams,
        lambda: broken(BELL, diags=lambda self, X: np.full((1, len(X)), 0.5)),
        "diags differs from the diagonal",
    ),
    "wrong shape of the diagonal": (
        check_grams,
        lambda: broken(BELL, diags=lambda self, X: np.ones((2, len(X)))),
        "diags has shape",
    ),
    "above its supremum": (
        check_grams,
        lambda: broken(WAVES, bound=0.1),
        r"kernel wave 1: k\(x, x\) reaches .* above sup = 0\.1",
    ),
    "one supremum for two kernels": (
        check_grams,
        lambda: broken(WAVES, sup=property(lambda self: np.ones(1))),
        "sup has 1 entries for 2 kernels",
    ),
    "names that are no text": (
        check_grams,
        lambda: broken(WAVES, names=property(lambda self: (1, 2))),
        "names",
    ),
    "changes its points": (
        check_grams,
        lambda: broken(WAVES, write_features=changing),
        "kernel wave 1: the points that it is given are changed",
    ),
    "differs by call": (
        check_grams,
        lambda: broken(BELL, each_gram=gram(lambda X, Z: bell(X, Z) * (1 + 1e-6 * next(calls)))),
        "differs from one call to the next",
    ),
    "features of another kernel": (
        check_features,
        lambda: broken(WAVES, grams=lambda self, X, Z: 2 * FeatureFamily.grams(self, X, Z)),
        "kernel wave 1: features do not give the Gram matrix",
    ),
    "wrong jacobian": (
        check_derivatives,
        lambda: broken(WAVES, write_jacobian=lambda self, X, out: out.fill(1.0)),
        "wave 1: the derivative of k",
    ),
    "wrong gradient": (
        check_derivatives,
        lambda: broken(
            BELL, each_gradient=lambda self, X, Z: iter([-next(Bell.each_gradient(self, X, Z))])
        ),
        "bell: the derivative of k",
    ),
    "both at once differ": (
        check_derivatives,
        lambda: broken(WAVES, write_both=write_both),
        "features_and_jacobian differs",
    ),
    "selects in its own order": (
        check_select,
        lambda: broken(WAVES, select=lambda self, indices: self),
        "select gives names",
    ),
    "selects other kernels of the same name": (
        check_select,
        lambda: broken(
            WAVES,
            names=property(lambda self: ("wave",) * len(self.rates)),
            select=lambda self, indices: type(self)(self.rates[: len(indices)]),
        ),
        "select changes the kernels or their order",
    ),
    "is another one when it is read": (
        check_storage,
        lambda: broken(WAVES, __init__=lambda self, rates: scale_rates(self, rates, 2.0)),
        "differs after it was stored|storing changes names",
    ),
    "is a little different when it is read": (
        check_storage,
        lambda: broken(WAVES, __init__=lambda self, rates: scale_rates(self, rates, 1 + 1e-9)),
        "differs after it was stored|storing changes the kernels",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_fails_its_law(name):
    law, make, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message):
        law(make(), X.copy())
    with pytest.raises(AssertionError):
        check_kernel(make(), X.copy())


def test_a_function_of_the_user_is_checked_too():
    def lopsided(A, B):
        return 1.0 + np.multiply.outer(A[:, 0], B[:, 1]) * (len(A) > 6)

    base = from_gram(lambda A, B: 1.0 - (A[:, :1] - B[:, 0]) ** 2, name="parabola")
    with pytest.raises(AssertionError, match="kernel parabola: not positive semi-definite"):
        check_grams(base, X)
    with pytest.raises(Exception, match="not symmetric"):  # found before the laws
        check_grams(from_gram(lopsided, name="lopsided"), X)


def test_the_laws_need_no_test_framework():
    code = "import sys, metakel.testing; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
