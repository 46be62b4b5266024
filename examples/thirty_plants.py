"""Lifelong: thirty plants are set up one after the other, each faster than the ones before."""

import numpy as np

import metakel as mk

rng, noise_std = np.random.default_rng(0), 0.1
base, settings = mk.legendre(20, scaling="sup"), mk.grid([(-1, 1)], 101)
shared = [1, 4, 7, 10, 15]  # kernels that matter in every plant; nobody tells the learner


def plant():
    amounts = rng.normal(size=5)
    amounts *= 2.5 / np.linalg.norm(amounts)
    return lambda X: base.features(X)[:, shared] @ amounts


life = mk.Lifelong(base, settings, noise_std=noise_std, norm_bound=3.0, warm_up=5, rng=rng)
lost = []
for number in range(30):
    output, optimizer = plant(), life.task(f"plant {number}")
    for _ in range(25):
        x = optimizer.ask()
        optimizer.tell(x, output(x[None])[0] + noise_std * rng.normal())
    lost.append(np.mean(output(settings.X).max() - output(optimizer.X)))
    life.finish(optimizer)

print(life.report())
for first in (0, 5, 20):
    last = 30 if first == 20 else first + 5
    print(f"plants {first:2} to {last - 1}: {np.mean(lost[first:last]):.2f} lost per run")
