"""A bandit researcher's own base kernels: feature maps and a Gram-only kernel in one dictionary."""

import numpy as np

import metakel as mk

rng, noise_std = np.random.default_rng(0), 0.05


def wave(k):  # the functions of one frequency, at any phase
    return lambda X: np.column_stack([np.cos(k * X[:, 0]), np.sin(k * X[:, 0])])


def brownian(X, Z):  # Brownian motion from -1 on, which has no finite features
    return np.minimum(X + 1, Z.T + 1) / 2


base = mk.kernels.from_gram(brownian, name="brownian", d0=1, sup=1.0)
for k in range(1, 13):
    base += mk.kernels.from_features(wave(k), 2, name=f"wave {k}", d0=1, sup=1.0)


def draw():  # a task: two of the waves, with amounts and phases of its own
    a, b = rng.normal(size=(2, 2)) / 2
    return lambda X: wave(3)(X) @ a + wave(7)(X) @ b


pairs = [(X, draw()(X) + noise_std * rng.normal(size=25)) for X in rng.uniform(-1, 1, (30, 25, 1))]
learned = mk.learn_kernel(mk.History.from_pairs(pairs), base, noise_std=noise_std, delta=0.05)
print(learned)

f, arms = draw(), mk.grid([(-1, 1)], 201)
bandit = mk.GPUCB(mk.ConfidenceSequence(learned, norm_bound=3, delta=0.1), arms, rng=rng)
while bandit.t < 20:
    bandit.tell(x := bandit.ask(), f(x[None])[0] + noise_std * rng.normal())
truth, (low, high) = f(arms.X), bandit.confidence(arms.X)
print("f lies in its band:", bool(((low <= truth) & (truth <= high)).all()))
regret = truth.max() - f(bandit.best().x[None])[0]
print(f"regret {regret:.3f}, certified {bandit.certificate().regret:.3f}")
