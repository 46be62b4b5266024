"""Federated: three sites, each a process with its own data, teach one kernel by sums alone."""

import multiprocessing as mp

import numpy as np

import metakel as mk
from metakel.scale import Federation, client_sums

base, noise_std = mk.legendre(20, scaling="sup"), 0.1


def site(number, line):  # holds the data, and answers questions until it is told to stop
    rng, pairs = np.random.default_rng(number), []
    for _ in range(6):
        X, amounts = rng.uniform(-1, 1, 25), rng.normal(size=3)
        y = base.features(X[:, None])[:, [1, 4, 7]] @ amounts + noise_std * rng.normal(size=25)
        pairs.append((X, y))
    sums = client_sums(mk.History.from_pairs(pairs), base)
    for question, arguments in iter(line.recv, None):
        line.send(getattr(sums, question)(*arguments))


class Remote:  # what the others see of a site
    def __init__(self, line):
        self.line = line

    def __getattr__(self, question):
        return lambda *arguments: self.line.send((question, arguments)) or self.line.recv()


if __name__ == "__main__":
    lines = [mp.Pipe() for _ in range(3)]
    for number, (_, theirs) in enumerate(lines):
        mp.Process(target=site, args=(number, theirs), daemon=True).start()
    clients = [Remote(ours) for ours, _ in lines]
    federation = Federation(clients, [[25] * 6] * 3, d0=1)
    print(federation)
    print(mk.learn_kernel(federation, base, noise_std=noise_std, lam="lifelong"))
