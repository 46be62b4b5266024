"""Contexts: the supply temperature of a heating system, chosen for the weather outside."""

import numpy as np

import metakel as mk
from metakel.space import Float, Space

rng, noise_std = np.random.default_rng(0), 0.1
# What we choose, and what we are given, in degrees Celsius.
space = Space((Float("supply", 25.0, 65.0), Float("outdoor", -15.0, 15.0)))
base = mk.kernels.tensor_product(2, 5, scaling="l2", include_constant=True)


def building():  # cost per hour: what the heat pump needs, and how far the rooms are from 20 C
    losses, radiators, price, comfort = rng.uniform([0.8, 0.9, 0.01, 1e-3], [1.2, 1.3, 0.03, 2e-3])

    def cost(supply, outdoor):
        missing = losses * (20 - outdoor) - radiators * (supply - 20)
        return price * (supply - outdoor) + comfort * missing**2 + noise_std * rng.normal()

    return np.vectorize(cost)


pairs = []
for _ in range(30):  # the log of a building: settings and weather as they happened to be
    past, X = building(), rng.uniform(-1, 1, size=(60, 2))
    pairs.append((X, past(45 + 20 * X[:, 0], 15 * X[:, 1])))
learned = mk.learn_kernel(mk.History.from_pairs(pairs), base, noise_std=noise_std, delta=0.05)
print(learned)

band = mk.ConfidenceSequence(learned, norm_bound=5.0, delta=0.1)
control = mk.GPUCB(band, space, minimize=True, rng=rng)
cost = building()  # a new one
for outdoor in 4 + 7 * np.sin(np.arange(30)):  # 30 hours of weather, never below -3 C
    x = control.ask(fixed={"outdoor": outdoor})
    control.tell(x, cost(**x))
for outdoor in (-10.0, 0.0, 10.0):
    best = control.certificate(fixed={"outdoor": outdoor})
    print(f"{outdoor:3.0f} C outside: {best.x['supply']:.0f} C, at most {best.regret:.2f} too dear")
