"""``python -m metakel.testing``: check an installation with the laws that the library relies on.

It needs no test framework, and ends with exit code 1 where a law fails.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy

import metakel as mk
from metakel.optimize import Optimizer
from metakel.testing import check_kernel, check_optimizer

DICTIONARIES = {
    "Legendre polynomials": mk.kernels.legendre(5, scaling="l2"),
    "tensor products": mk.kernels.legendre_2d(3, scaling="l2"),
    "random Fourier features": mk.kernels.random_fourier(
        6, 2, lengthscales=0.5, rng=np.random.default_rng(0)
    ),
    "squared exponential": mk.kernels.squared_exponential([0.3, 1.0], d0=2),
    "Matern": mk.kernels.matern(2.5, [0.3, 1.0], d0=2),
}


def main() -> int:
    """Run every check; the number of those that failed is the exit code, at most 1."""
    versions = f"metakel {mk.__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
    _say(f"{versions}, Python {platform.python_version()}, {platform.system()}")
    failed = [name for name, check in _checks().items() if not _passes(name, check)]
    _say(f"{len(failed)} of {len(_checks())} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


def _checks() -> dict[str, Callable[[], None]]:
    return {
        **{name: partial(_check_dictionary, base) for name, base in DICTIONARIES.items()},
        "GP-UCB with a learned kernel": _check_learned_kernel,
        "optimizer of a prior": _check_prior,
    }


def _check_dictionary(base: mk.kernels.KernelDictionary) -> None:
    check_kernel(base, np.random.default_rng(1).uniform(-1, 1, (12, base.d0 or 1)))


def _check_learned_kernel() -> None:
    learned = mk.learn_kernel(_history(), mk.kernels.legendre(4, scaling="l2"), noise_std=0.1)

    def make() -> Optimizer:
        sequence = mk.ConfidenceSequence(learned, norm_bound=3)
        return mk.GPUCB(sequence, mk.grid([(-1, 1)], 21), seed=2)

    check_optimizer(make, lambda x: float(-(x[0] ** 2)))


def _check_prior() -> None:
    prior = mk.learn_prior(_history(), certify="none")
    check_optimizer(prior.optimizer, lambda x: -((x["x0"] - 0.2) ** 2))


def _history() -> mk.History:
    """Six tasks that differ in level, slope and place of their maximum."""
    rng = np.random.default_rng(3)
    pairs = []
    for _ in range(6):
        X = rng.uniform(-1, 1, (15, 1))
        level, place = rng.normal(size=2)
        pairs.append((X, level - (X[:, 0] - 0.3 * place) ** 2 + 0.05 * rng.normal(size=15)))
    return mk.History.from_pairs(pairs)


def _passes(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception as error:  # whatever is wrong with this installation
        _say(f"  FAILED  {name}: {error!r}")
        return False
    _say(f"  passed  {name}")
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
