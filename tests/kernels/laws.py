"""Laws that hold for every dictionary of base kernels; used by the tests of each family."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from metakel.kernels import KernelDictionary, KernelSum


def check_gram_laws(base: KernelDictionary, X, Z) -> None:
    """Gram matrices are symmetric, PSD, consistent over point sets and with their diagonals."""
    K = base.grams(X)
    assert K.shape == (base.p, len(X), len(X))
    assert_allclose(K, K.transpose(0, 2, 1), rtol=1e-12, atol=1e-13)
    for part in K:
        assert np.linalg.eigvalsh(part).min() > -1e-10 * max(1, np.trace(part))
    assert_allclose(base.diags(X), np.diagonal(K, axis1=1, axis2=2), rtol=1e-10, atol=1e-12)
    both = base.grams(np.concatenate([X, Z]))
    assert_allclose(base.grams(X, Z), both[:, : len(X), len(X) :], rtol=1e-10, atol=1e-11)
    bounded = ~np.isnan(base.sup)
    assert (base.diags(X)[bounded] <= base.sup[bounded, None] * (1 + 1e-12)).all()


def check_feature_laws(base: KernelDictionary, X, Z) -> None:
    """Features give the Gram matrices, group by group, and are contiguous by column."""
    F, G = base.features(X), base.features(Z)
    assert F.shape == (len(X), base.dim)
    assert F.T.flags.c_contiguous
    assert [group.stop - group.start for group in base.groups] == list(base.dims)
    assert (base.groups[0].start, base.groups[-1].stop) == (0, base.dim)
    for K, group in zip(base.grams(X, Z), base.groups, strict=True):
        assert_allclose(F[:, group] @ G[:, group].T, K, rtol=1e-10, atol=1e-11)


def check_jacobian(base: KernelDictionary, X, *, h: float = 1e-6, atol: float = 1e-6) -> None:
    """Derivatives of the features match central differences."""
    jacobian = base.jacobian(X)
    assert jacobian.shape == (len(X), base.dim, X.shape[1])
    for i in range(X.shape[1]):
        step = h * np.eye(X.shape[1])[i]
        difference = (base.features(X + step) - base.features(X - step)) / (2 * h)
        assert_allclose(jacobian[:, :, i], difference, rtol=1e-5, atol=atol)


def check_gradient(kernel: KernelSum, x, Z, *, h: float = 1e-6) -> None:
    """Derivatives of k(x, z) in x match central differences."""
    gradient = kernel.gradient(x, Z)
    assert gradient.shape == Z.shape
    for i in range(len(x)):
        step = h * np.eye(len(x))[i]
        difference = (kernel((x + step)[None], Z) - kernel((x - step)[None], Z))[0] / (2 * h)
        assert_allclose(gradient[:, i], difference, rtol=1e-5, atol=1e-6)


def check_select(base: KernelDictionary, X, indices) -> None:
    """Selected kernels are the same kernels, in the order asked for."""
    chosen = base.select(indices)
    assert chosen.names == tuple(base.names[j] for j in indices)
    assert chosen.dims == tuple(base.dims[j] for j in indices)
    assert_allclose(chosen.grams(X), base.grams(X)[list(indices)], rtol=1e-12, atol=1e-13)
    assert_allclose(chosen.sup, base.sup[list(indices)])
    assert chosen.d0 == base.d0
