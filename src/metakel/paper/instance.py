"""One instance of the synthetic experiment: k*, meta-data, k-hat, and a function to optimise."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels import KernelDictionary, KernelSum, legendre, legendre_2d
from metakel.learn import LearnedKernel, learn_kernel
from metakel.paper.settings import Settings
from metakel.paper.streams import Streams
from metakel.paper.synthetic import coefficients, sample_tasks, signal, true_kernel
from metakel.theory import exploration_oracle, lambda_min_paper, noise_var_paper


@dataclass(frozen=True)
class Instance:
    """Meta-data of a true kernel.

    Attributes
    ----------
    true : KernelSum
        k*.
    history : History
        The meta-data.
    strength : (p,) array
        What every base kernel contributes to the meta-data (`synthetic.signal`).
    """

    settings: Settings
    true: KernelSum
    history: History
    strength: Array

    @property
    def beta_min(self) -> float:
        """c_1 of Assumption 3.1, over the kernels that the tasks used; nobody can observe it."""
        return float(self.strength[self.strength > 0].min())

    @property
    def full(self) -> KernelSum:
        """k_full (Eq. 10)."""
        return KernelSum.uniform(self.true.base)

    def learn(self, lam: float | str | None = None) -> LearnedKernel:
        """k-hat as the reading scales it, at the lambda of the settings unless told otherwise."""
        return learn_kernel(
            self.history,
            self.true.base,
            lam=self.settings.lam if lam is None else lam,
            noise_std=self.settings.noise_std,
            delta=self.settings.delta,
            weights="eta",
            scale=self.settings.reading.scale,
            beta_min=self.beta_min,
        )


def dictionary(settings: Settings, inputs: int = 1) -> KernelDictionary:
    """The base kernels of Section 6 in one or two dimensions."""
    make = legendre if inputs == 1 else legendre_2d
    return make(settings.p, scaling=settings.reading.scaling)


def instance(
    settings: Settings, streams: Streams, *, inputs: int = 1, m: int | None = None
) -> Instance:
    """Draw k* and its meta-data; with the same streams, m tasks are the first m of any more."""
    true = true_kernel(
        dictionary(settings, inputs),
        sparsity=settings.sparsity,
        rng=streams.rng("kernel"),
        smallest=settings.smallest,
    )
    history, beta = sample_tasks(
        true,
        m=settings.m if m is None else m,
        n=settings.n,
        norm=settings.norm,
        noise_std=settings.noise_std,
        rng=streams.rng("history"),
        signs=settings.reading.signs,
    )
    return Instance(settings, true, history, signal(true, beta))


def domain(settings: Settings, inputs: int = 1) -> Array:
    """(k, inputs) grid on [-1, 1]^inputs."""
    axis = np.linspace(-1, 1, settings.grid)
    return np.stack(np.meshgrid(*[axis] * inputs, indexing="ij"), axis=-1).reshape(-1, inputs)


def objective(settings: Settings, true: KernelSum, Z: Array, streams: Streams) -> Array:
    """(k,) values at ``Z`` of a random function to maximise, drawn like a task of the meta-data.

    Where the reading minimises f, this is -f.
    """
    beta = coefficients(
        true, norm=settings.norm, rng=streams.rng("objective"), signs=settings.reading.signs
    )
    values = true.features(Z) @ beta
    return -values if settings.reading.goal == "minimise" else values


def theory_lambda(settings: Settings) -> float:
    """The smallest lambda that Theorem 4.3 allows."""
    return lambda_min_paper(
        noise_std=settings.noise_std,
        m=settings.m,
        n=settings.n,
        p=settings.p,
        d_max=1,
        delta=settings.delta,
    )


def theory_nu(settings: Settings, kernel: KernelSum) -> Array:
    """(horizon,) nu_t of Lemma C.1 with the dimension of the kernel: about B, since sigma is small.

    The same B for all kernels, as the paper compares them, although ||f|| differs.
    """
    steps = range(1, settings.horizon + 1)
    return np.array(
        [
            exploration_oracle(
                norm_bound=settings.norm,
                noise_std=settings.noise_std,
                dim=kernel.dim,
                t=t,
                delta=settings.delta,
            )
            for t in steps
        ]
    )


def paper_noise_var(settings: Settings) -> Array:
    """(horizon,) regulariser 1 + 2/t of Theorem 5.1."""
    return np.array([noise_var_paper(t=t) for t in range(1, settings.horizon + 1)])


def norm_in(kernel: KernelSum, true: KernelSum, beta: Array) -> float:
    """Norm in the space of ``kernel`` of the function that has beta (dim,) in that of ``true``."""
    total = 0.0
    for j, group in zip(true.active, true.groups, strict=True):
        energy = true.eta[j] * float(beta[group] @ beta[group])
        if energy:
            total += energy / kernel.eta[j] if kernel.eta[j] else np.inf
    return sqrt(total)
