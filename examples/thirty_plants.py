"""Thirty plants are set up one after the other, each with the kernels that the others taught."""

from pathlib import Path

import numpy as np

import metakel as mk

rng, noise_std, log = np.random.default_rng(0), 0.1, Path("plants.npz")
base, settings = mk.kernels.legendre(20, scaling="sup"), mk.grid([(-1, 1)], 101)
everything, learned, lost = mk.KernelSum.uniform(base, weight=1.0), None, []
how = {"noise_std": noise_std, "lam": "lifelong", "delta": 0.05}  # holds at all relearnings
shared = [1, 4, 7, 10, 15]  # kernels that matter in every plant; nobody tells the learner
if log.exists():  # go on where an earlier session stopped
    with np.load(log) as kept:
        history = mk.History.from_arrays(kept["X"], kept["y"], kept["plant"])
    learned = mk.learn_kernel(history, base, **how)

for number in range(learned.history.m if learned else 0, 30):
    amounts = rng.normal(size=5)
    amounts *= 2.5 / np.linalg.norm(amounts)
    output = lambda X, amounts=amounts: base.features(X)[:, shared] @ amounts  # noqa: E731
    # A learned kernel keeps all others below nine tasks: fewer cannot say what the next one uses.
    band = mk.ConfidenceSequence(learned or everything, noise_std=noise_std, norm_bound=3.0)
    optimizer = mk.GPUCB(band, settings, rng=rng)
    for _ in range(25):
        x = optimizer.ask()
        optimizer.tell(x, output(x[None])[0] + noise_std * rng.normal())
    lost.append(np.mean(output(settings.X).max() - output(optimizer.X)))
    task = mk.History.from_pairs([(optimizer.X, optimizer.y)])
    learned = learned.update(task) if learned else mk.learn_kernel(task, base, **how)
    X, y = (np.concatenate([getattr(task, a) for task in learned.history]) for a in "Xy")
    np.savez(log, X=X, y=y, plant=np.repeat(range(number + 1), learned.history.sizes))

print(learned)
print(f"lost per run: {np.mean(lost[:9]):.2f} in the first 9 plants, {np.mean(lost[9:]):.2f} later")
