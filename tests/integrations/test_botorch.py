"""BoTorch with the learned kernel: its posterior is ours, and so are its decisions."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qUpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from numpy.testing import assert_allclose
from scipy.stats import norm
from torch_kernels import FAMILIES, MODEL, shape_in

import metakel as mk
from metakel.errors import InputError
from metakel.integrations.gpytorch import GPyTorchKernel, GPyTorchMean
from metakel.priors.confidence import Calibration

SIDE = np.linspace(-1, 1, 41)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)
SQUARE = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
NOISE = 0.01
NU = 2.0


def objective(X):
    return np.sin(3 * X[:, 0]) - (X[:, 1] - 0.3) ** 2


def data(t, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (t, 2))
    return X, objective(X) + 0.1 * rng.standard_normal(t)


def botorch_model(kernel, X, y, *, mean=None, outcome_transform=None, noise=NOISE):
    Y = torch.tensor(y)[:, None]
    return SingleTaskGP(
        torch.tensor(X),
        Y,
        torch.full_like(Y, noise),
        covar_module=kernel,
        mean_module=mean or ZeroMean(),
        outcome_transform=outcome_transform,
    )


def mean_and_variance(model, Z):
    found = model.posterior(torch.tensor(Z))
    return (values.detach().numpy()[:, 0] for values in (found.mean, found.variance))


@pytest.mark.parametrize("t", [1, 6, 60])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_posterior_is_ours(name, t):
    kernel = FAMILIES[name](2)
    X, y = data(t)
    model = botorch_model(GPyTorchKernel(kernel), X, y)
    mean, variance = mean_and_variance(model, GRID[::40])
    ours = mk.posterior(kernel, X, y, noise_var=NOISE)
    assert_allclose(mean, ours.mean(GRID[::40]), atol=1e-6)
    assert_allclose(variance, ours.var(GRID[::40]), atol=1e-6)
    joint = model.posterior(torch.tensor(GRID[:3])).distribution.covariance_matrix
    assert_allclose(joint.detach(), ours.cov(GRID[:3]), atol=1e-6)


def test_with_almost_no_noise_features_keep_the_posterior_exact():
    kernel = FAMILIES["legendre l2"](2)
    X, y = data(60)
    model = botorch_model(GPyTorchKernel(kernel), X, y, noise=1e-6)
    mean, variance = mean_and_variance(model, GRID[::40])
    ours = mk.posterior(kernel, X, y, noise_var=1e-6)
    assert_allclose(mean, ours.mean(GRID[::40]), rtol=1e-5)
    assert_allclose(variance, ours.var(GRID[::40]), rtol=1e-5)


def test_mean_and_kernel_of_a_prior_go_together():
    learned = Calibration(shape_in(2), MODEL, np.empty(0))
    X, y = data(8)
    mean, variance = mean_and_variance(
        botorch_model(GPyTorchKernel(learned.kernel), X, y, mean=GPyTorchMean(learned)), GRID[::40]
    )
    ours = mk.posterior(learned.kernel, X, y - learned.center(X), noise_var=NOISE)
    assert_allclose(mean, learned.center(GRID[::40]) + ours.mean(GRID[::40]), atol=1e-6)
    assert_allclose(variance, ours.var(GRID[::40]), atol=1e-6)


def found_by(acquisition):
    torch.manual_seed(0)
    x, _ = optimize_acqf(acquisition, SQUARE, q=1, num_restarts=4, raw_samples=64)
    return x.numpy()


@pytest.mark.parametrize("name", ["legendre l2", "mixed", "prior"])
def test_optimize_acqf_finds_the_top_of_our_bounds(name):
    kernel = FAMILIES[name](2)
    X, y = data(10)
    model = botorch_model(GPyTorchKernel(kernel), X, y)
    ours = mk.posterior(kernel, X, y, noise_var=NOISE)

    def upper(Z):
        return ours.mean(Z) + NU * ours.std(Z)

    def improvement(Z):
        z = (ours.mean(Z) - y.max()) / ours.std(Z)
        return ours.std(Z) * (z * norm.cdf(z) + norm.pdf(z))

    sampler = SobolQMCNormalSampler(torch.Size([256]), seed=0)
    bounds = UpperConfidenceBound(model, beta=NU**2)
    several = qUpperConfidenceBound(model, beta=NU**2, sampler=sampler)
    log_ei = LogExpectedImprovement(model, best_f=y.max())
    assert upper(found_by(bounds)) >= upper(GRID).max() - 1e-6
    assert upper(found_by(several)) >= upper(GRID).max() - 0.02
    assert improvement(found_by(log_ei)) >= improvement(GRID).max() - 1e-6


def test_fitting_changes_the_factor_and_leaves_the_weights():
    X, y = data(30)
    kernel = ScaleKernel(GPyTorchKernel(FAMILIES["fourier"](2)))
    Y = torch.tensor(5 * y)[:, None]
    model = SingleTaskGP(torch.tensor(X), Y, covar_module=kernel, outcome_transform=None)
    before = kernel.base_kernel.eta.clone()
    start = kernel.outputscale.item()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert torch.equal(kernel.base_kernel.eta, before)
    assert kernel.outputscale.item() > 2 * start


@pytest.mark.parametrize("name", ["legendre sup", "prior"])
def test_conditioning_later_equals_conditioning_at_once(name):
    X, y = data(30)
    model = botorch_model(GPyTorchKernel(FAMILIES[name](2)), X[:20], y[:20])
    model.posterior(torch.tensor(GRID[:1]))
    values = torch.tensor(y[20:])[:, None]
    later = model.condition_on_observations(
        torch.tensor(X[20:]), values, noise=torch.full_like(values, NOISE)
    )
    at_once = botorch_model(GPyTorchKernel(FAMILIES[name](2)), X, y)
    for one, other in zip(
        *(mean_and_variance(m, GRID[::40]) for m in (later, at_once)), strict=True
    ):
        assert_allclose(one, other, atol=1e-6)


def test_your_own_function_is_optimized_without_gradients():
    own = mk.KernelSum.uniform(
        mk.kernels.from_features(
            lambda X: np.column_stack([X[:, 0], 2 + X[:, 1] ** 2]), 2, name="mine"
        )
    )
    X, y = data(5)
    acquisition = UpperConfidenceBound(botorch_model(GPyTorchKernel(own), X, y), beta=4.0)
    with pytest.raises(InputError, match="with_grad"):
        optimize_acqf(acquisition, SQUARE, q=1, num_restarts=1, raw_samples=4)
    x, value = optimize_acqf(
        acquisition, SQUARE, q=1, num_restarts=2, raw_samples=16, options={"with_grad": False}
    )
    with torch.no_grad():
        assert value >= acquisition(torch.tensor(GRID)[:, None]).max() - 1e-4


def history_of(rng, m, *, related):
    pairs = []
    for _ in range(m):
        X = rng.uniform(-1, 1, (15, 2))
        y = objective(X) * rng.uniform(0.8, 1.2) + rng.normal()
        pairs.append((X, y if related else rng.permutation(y)))
    return mk.History.from_pairs(pairs)


@pytest.mark.parametrize("related", [True, False])
def test_a_mean_that_does_not_help_is_left_out_as_in_the_prior(related, rng):
    prior = mk.learn_prior(history_of(rng, 8, related=related), certify="none")
    assert prior.helps is related
    configurations = prior.space.decode(GRID[::40])
    found = GPyTorchMean(prior)(torch.tensor(prior.space.encode(configurations)))
    assert_allclose(found, prior.mean(configurations), rtol=1e-9)
    assert bool(found.max() > found.min()) is related


def test_what_is_no_kernel_or_has_no_mean_is_refused_with_the_way_to_one(rng):
    history = history_of(rng, 4, related=True)
    prior = mk.learn_prior(history, certify="none")
    base = mk.kernels.tensor_product(2, 2, scaling="l2")
    learned = mk.learn_kernel(history, base, lam=0.01)
    for given, remedy in (
        (learned, "Learned.*give learned.kernel"),
        (prior, "Prior.*give prior.kernel"),
        (base, "Dictionary.*KernelSum.uniform"),
        (0.5, "kernel is a float; expected a KernelSum"),
    ):
        with pytest.raises(InputError, match=remedy):
            GPyTorchKernel(given)
    for given in (learned, learned.kernel, history):
        with pytest.raises(InputError, match=f"{type(given).__name__}.*no mean.*ZeroMean"):
            GPyTorchMean(given)
    GPyTorchKernel(prior.kernel), GPyTorchMean(prior), GPyTorchMean(prior.calibration)


def test_the_example_gets_close_in_eight_evaluations(capsys):
    example = Path(__file__).parents[2] / "examples" / "botorch_loop.py"
    runpy.run_path(str(example))
    lines = capsys.readouterr().out.splitlines()
    regrets = [float(line.split()[2]) for line in lines if line.startswith("evaluation")]
    assert len(regrets) == 8
    assert regrets[-1] < 0.05 < regrets[0]
    assert len(example.read_text().splitlines()) <= 40
