"""A BoTorch loop with a learned mean and kernel. Needs ``pip install metakel[gpytorch]``."""

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf

import metakel as mk
from metakel.integrations.gpytorch import GPyTorchKernel, GPyTorchMean
from metakel.space import Float

SPACE = mk.Space((Float("x", -1, 1), Float("y", -1, 1)))
BOUNDS = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)


def draw_task(rng):
    a, b, c, level = rng.normal([3, 1, 0.5, 0], [0.5, 0.4, 0.3, 5])
    return lambda X: level - a * (X[:, 0] - 0.4) ** 2 + b * np.sin(3 * X[:, 1]) + c * X.prod(1)


rng = np.random.default_rng(0)
torch.manual_seed(0)
past = [(X := rng.uniform(-1, 1, (25, 2)), draw_task(rng)(X)) for _ in range(20)]
prior = mk.learn_prior(mk.History.from_pairs(past), SPACE)
print(prior)

f = draw_task(rng)
best = f(rng.uniform(-1, 1, (100_000, 2))).max()
X = BOUNDS.mean(0, keepdim=True)
for _ in range(8):
    Y = torch.tensor(f(X.numpy()))[:, None]
    print(f"evaluation {len(X)}: {best - Y.max():.4f} below the best")
    kernel, mean = GPyTorchKernel(prior.kernel), GPyTorchMean(prior)
    options = {"covar_module": kernel, "mean_module": mean, "outcome_transform": None}
    model = SingleTaskGP(X, Y, torch.full_like(Y, 1e-4), **options)
    acquisition = LogExpectedImprovement(model, best_f=Y.max())
    x, _ = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=4, raw_samples=128)
    X = torch.cat([X, x])
