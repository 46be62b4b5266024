"""The norm bound, the kernel it is about, and the bands around the learned mean."""

from __future__ import annotations

import numpy as np
import pytest
from histories import draw_task, learn, simulate
from numpy.testing import assert_allclose
from scipy.stats import binom

from metakel import KernelSum
from metakel.confidence.set import Batch, no_observations, smallest_squared_radius
from metakel.errors import InputError
from metakel.kernels import legendre
from metakel.priors.confidence import Calibration, needed_norms, smallest_norm


@pytest.fixture(scope="module")
def prior():
    return learn(simulate(np.random.default_rng(3), m=24))


def test_the_kernel_is_the_belief_plus_level_and_amplitude(prior):
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-1, 1, (8, 2)), rng.uniform(-1, 1, (5, 2))
    shape, model = prior.task_gp, prior.model
    left, right = shape.prepare(X), shape.prepare(Z)
    amplitude = np.exp(model.spread**2) - 1
    expected = model.level_variance + amplitude * np.outer(left.mean, right.mean)
    expected = model.scale**2 * (expected + shape.gram(left, right))
    kernel = prior.kernel
    assert_allclose(kernel(X, Z), expected, atol=1e-8)
    again = KernelSum.from_json(kernel.to_json())
    assert (again(X, Z) == kernel(X, Z)).all()


def test_principal_functions_have_the_slopes_they_say(prior):
    family = prior.kernel.base.families[0]
    X = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    slopes = family.jacobian(X)
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        difference = (family.features(X + step) - family.features(X - step)) / 2e-6
        assert_allclose(slopes[:, :, i], difference, atol=1e-6)


def test_the_bound_is_the_right_order_statistic_or_infinite(prior):
    norms = np.arange(1.0, 10.0)  # 9 held-out tasks
    calibration = Calibration(prior.task_gp, prior.model, norms)
    assert calibration.norm_bound(0.1) == 9
    assert calibration.norm_bound(0.2) == 8
    assert calibration.norm_bound(0.09) == np.inf
    with pytest.raises(InputError, match="delta is 1"):
        calibration.norm_bound(1.0)


def test_the_conformal_bound_covers_exchangeable_tasks(prior):
    """Kernel fixed, tasks new: nine calibrate, one is tested, 150 times."""
    rng = np.random.default_rng(1)
    calibration, delta, runs = prior.calibration, 0.1, 150
    fresh = simulate(rng, m=10 * runs, n=15)
    norms = needed_norms(calibration.task_gp, calibration.model, fresh).reshape(runs, 10)
    bounds = [
        Calibration(prior.task_gp, prior.model, np.sort(row[:9])).norm_bound(delta) for row in norms
    ]
    missed = int((norms[:, 9] > bounds).sum())
    assert missed <= binom.ppf(1 - 1e-4, runs, delta)
    assert missed > 0  # nine norms give exactly 0.9: a bound that never fails is too large


def test_the_norm_of_a_task_is_the_smallest_that_explains_its_values_up_to_the_noise(prior):
    """With 99 % of it no function does; with the norm of a ridge fit, some tasks were missed."""
    calibration = prior.calibration
    fresh = simulate(np.random.default_rng(5), m=12, n=25)
    norms = needed_norms(calibration.task_gp, calibration.model, fresh)
    for task, norm in zip(fresh, norms, strict=True):
        noise = np.full(task.n, calibration.noise_std)
        batch = Batch(task.X, task.y - calibration.center(task.X), noise)
        spectrum = no_observations(calibration.kernel).append(batch).spectrum()
        own, less = (
            smallest_squared_radius(spectrum, squared_radius=task.n, norm_bound=share * norm)
            for share in (1 + 1e-6, 0.99)
        )
        assert own >= -1e-6 * task.n
        assert less < 0


def test_no_norm_is_needed_where_zero_explains_the_values():
    kernel = KernelSum.uniform(legendre(3, scaling="sup"), weight=1.0)
    X, noise = np.linspace(-1, 1, 9)[:, None], np.ones(9)
    quiet = no_observations(kernel).append(Batch(X, np.full(9, 0.5), noise)).spectrum()
    assert smallest_norm(quiet, 9) == 0
    # What no function explains does not count: then it is the norm of the interpolant.
    odd = np.where(np.arange(9) % 2, 5.0, -5.0)
    spectrum = no_observations(kernel).append(Batch(X, odd, noise)).spectrum()
    theta = np.linalg.lstsq(kernel.features(X), odd, rcond=None)[0]
    assert_allclose(smallest_norm(spectrum, 9), np.linalg.norm(theta), rtol=1e-6)


def test_bands_around_the_learned_mean_cover_at_all_times(prior):
    rng = np.random.default_rng(2)
    delta, runs, missed = 0.2, 40, 0
    Z = rng.uniform(-0.95, 0.95, (40, 2))
    widths = []
    for _ in range(runs):
        f = draw_task(rng)
        band = prior.confidence(delta=delta, noise_std=0.02)
        covered = True
        for _ in range(3):
            X = rng.uniform(-0.95, 0.95, (3, 2))
            band.tell(X, f(X) + 0.02 * rng.standard_normal(3))
            lower, upper = band.interval(Z)
            covered &= bool(((lower <= f(Z)) & (f(Z) <= upper)).all())
        missed += not covered
        widths.append((upper - lower).mean())
    assert missed <= binom.ppf(1 - 1e-4, runs, delta)
    first_lower, first_upper = prior.confidence(delta=delta).interval(Z)
    assert np.mean(widths) < 0.5 * (first_upper - first_lower).mean()


def test_a_wrong_norm_bound_is_noticed(prior):
    """Negative control: with norms a hundred times too small the bands miss."""
    small = Calibration(
        prior.calibration.task_gp, prior.calibration.model, prior.calibration.norms / 100
    )
    rng = np.random.default_rng(2)
    Z = rng.uniform(-1, 1, (40, 2))
    center, bound = small.center(Z), small.norm_bound(0.1)
    width = bound * np.sqrt(small.kernel.diag(Z))
    misses = [bool((np.abs(draw_task(rng)(Z) - center) > width).any()) for _ in range(20)]
    assert sum(misses) > 10


def test_too_few_tasks_give_no_bands():
    prior = learn(simulate(np.random.default_rng(0), m=6))
    assert prior.norm_bound(0.1) == np.inf
    with pytest.raises(InputError, match="3 held-out tasks are too few"):
        prior.confidence(delta=0.1)
    few = learn(simulate(np.random.default_rng(0), m=3))
    assert few.calibration is None
    with pytest.raises(InputError, match="at least 4 tasks"):
        few.confidence()
