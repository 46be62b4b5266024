"""Decisions use one BLAS thread, and leave the process as they found it."""

import numpy as np
import pytest

import metakel as mk
from gpucb import gpucb
from metakel._arrays import SingleBlasThread

threadpoolctl = pytest.importorskip("threadpoolctl")


def blas_threads():
    import scipy.linalg  # noqa: F401

    found = threadpoolctl.threadpool_info()
    return {library["num_threads"] for library in found if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_a_decision_runs_on_one_thread_and_gives_the_others_back(two_threads):
    inside = []

    def acquisition(model, best):
        inside.append(blas_threads())
        return model.upper_bound()

    kernel = mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2"))
    optimizer = gpucb(
        kernel,
        mk.box([(-1, 1)]),
        noise_std=0.1,
        norm_bound=1.0,
        rng=np.random.default_rng(0),
        acquisition=acquisition,
    )
    optimizer.tell(optimizer.ask(), 0.0)
    optimizer.ask()
    assert inside
    assert set().union(*inside) == {1}
    assert blas_threads() == {2}


def test_the_last_of_overlapping_blocks_gives_the_threads_back(two_threads):
    """As when two Python threads ask at once, and the first to begin is the first to end."""
    first, second = SingleBlasThread(), SingleBlasThread()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert blas_threads() == {1}
    second.__exit__()
    assert blas_threads() == {2}
