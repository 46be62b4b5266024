"""Section 5: what GP-UCB does, and the regret it may have."""

from __future__ import annotations

import numpy as np
import pytest

from gpucb import gpucb
from metakel.gp import posterior
from metakel.kernels import KernelSum, legendre
from metakel.search import grid
from metakel.theory import exploration, regret_bound

DOMAIN = grid([(-1, 1)], 41)
KERNEL = KernelSum.uniform(legendre(6, scaling="sup"), active=[0, 2, 5])


@pytest.mark.parametrize("noise_var", [0.04, 1.5])
def test_eq_11_the_next_point_maximises_mean_plus_nu_deviations(noise_var):
    rng = np.random.default_rng(0)
    for t in (0, 1, 4, 12):
        X = DOMAIN.X[rng.integers(41, size=t)]
        y = rng.normal(size=t)
        optimizer = gpucb(KERNEL, DOMAIN, rng=rng, noise_std=0.2, nu=1.7, noise_var=noise_var)
        if t:
            optimizer.tell(X, y)
        post = posterior(KERNEL, X, y, noise_var=noise_var)
        bound = post.mean(DOMAIN.X) + 1.7 * post.std(DOMAIN.X)
        chosen = int(DOMAIN.index(optimizer.ask()[None])[0])
        assert bound[chosen] >= bound.max() - 1e-9


def test_corollary_5_2_holds_for_gp_ucb_on_every_covered_run():
    """With the corrected nu of Theorem 5.1; the runs are covered almost always."""
    B, sigma, noise_var, horizon = 2.0, 0.5, 0.25, 25
    sup, covered_runs = float(KERNEL.diag(DOMAIN.X).max()), 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        theta = rng.normal(size=3)
        theta *= B / np.linalg.norm(theta)
        f = KERNEL.features(DOMAIN.X) @ theta
        nus, regret, covered = [], 0.0, True
        optimizer = gpucb(
            KERNEL,
            DOMAIN,
            rng=rng,
            noise_std=sigma,
            nu=lambda t, nus=nus: nus[-1],
            noise_var=noise_var,
        )
        for t in range(horizon + 1):
            post = posterior(KERNEL, optimizer.X, optimizer.y, noise_var=noise_var)
            gain = post.information_gain
            nus.append(
                exploration(
                    norm_bound=B,
                    noise_std=sigma,
                    smallest_weight=1.0,
                    information_gain=gain,
                    noise_var=noise_var,
                    delta=0.1,
                )
            )
            error = np.abs(f - post.mean(DOMAIN.X))
            covered &= bool((error <= nus[-1] * post.std(DOMAIN.X) + 1e-9).all())
            if t < horizon:
                x = optimizer.ask()
                value = f[DOMAIN.index(x[None])[0]]
                regret += f.max() - value
                optimizer.tell(x, value + sigma * rng.normal())
        bound = regret_bound(
            horizon=horizon, nu=nus[-1], information_gain=gain, noise_var=noise_var, sup=sup
        )
        covered_runs += covered
        assert regret <= bound or not covered
    assert covered_runs >= 11
