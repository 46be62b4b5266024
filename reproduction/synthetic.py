"""The synthetic experiment of Section 6: k*, meta-data, k-hat, and a function to optimise."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from metakel._arrays import Array
from metakel.data import History
from metakel.kernels import KernelDictionary, KernelSum, legendre, legendre_2d
from metakel.learn import EtaWeights, LearnedKernel, learn_kernel
from metakel.theory import exploration_oracle, lambda_min_paper, noise_var_paper
from reproduction.settings import ExperimentSettings, Signs, Streams


def true_kernel(
    base: KernelDictionary, *, sparsity: int, rng: np.random.Generator, smallest: float = 0.0
) -> KernelSum:
    """k* of Eq. 5: a random support, uniform weights scaled to sum to one.

    ``smallest`` redraws until every weight reaches it: uniform weights come arbitrarily close to
    zero, against Assumption 3.1.
    """
    active = np.sort(rng.choice(base.p, sparsity, replace=False))
    while True:
        weights = rng.uniform(size=sparsity)
        weights /= weights.sum()
        if weights.min() >= smallest:
            break
    eta = np.zeros(base.p)
    eta[active] = weights
    return KernelSum(base, eta)


def coefficients(
    kernel: KernelSum,
    *,
    norm: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
    everything: bool = False,
) -> Array:
    """(dim,) beta of Eq. 6 for one task, scaled to the RKHS norm B.

    The task uses a random non-empty subset of the active kernels (all of them if ``everything``),
    with entries uniform on (0, 1) as printed, or on (-1, 1) for ``signs="both"``.
    """
    count = kernel.active.size
    size = count if everything else int(rng.integers(1, count + 1))
    chosen = rng.choice(count, size, replace=False)
    beta = np.zeros(kernel.dim)
    low = -1.0 if signs == "both" else 0.0
    for j in chosen:
        beta[kernel.groups[j]] = rng.uniform(low, 1.0, size=beta[kernel.groups[j]].size)
    scaled: Array = norm / np.linalg.norm(beta) * beta
    return scaled


def sample_tasks(
    kernel: KernelSum,
    *,
    m: int,
    n: int,
    norm: float,
    noise_std: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
) -> tuple[History, Array]:
    """Meta-data of Eq. 4 and the (m, dim) beta behind them (Eq. 6).

    Every task is seen at n uniform points of [-1, 1]^d0.
    """
    pairs, rows = [], []
    for _ in range(m):
        X = rng.uniform(-1, 1, size=(n, kernel.base.d0 or 1))
        beta = coefficients(kernel, norm=norm, rng=rng, signs=signs)
        f = kernel.features(X) @ beta
        pairs.append((X, f + noise_std * rng.standard_normal(n)))
        rows.append(beta)
    return History.from_pairs(pairs), np.array(rows)


def sample_history(
    kernel: KernelSum,
    *,
    m: int,
    n: int,
    norm: float,
    noise_std: float,
    rng: np.random.Generator,
    signs: Signs = "positive",
) -> History:
    """Meta-data of Eq. 4: m tasks, each seen at n uniform points of [-1, 1]^d0."""
    history, _ = sample_tasks(
        kernel, m=m, n=n, norm=norm, noise_std=noise_std, rng=rng, signs=signs
    )
    return history


def signal(kernel: KernelSum, beta: Array) -> Array:
    """(p,) norms over all tasks of what each base kernel contributes, sqrt(eta_j) ||beta^(j)||.

    What eta-hat estimates; its smallest value over the support of k* is c_1 of Assumption 3.1.
    """
    strength = np.zeros(kernel.base.p)
    for j, group in zip(kernel.active, kernel.groups, strict=True):
        strength[j] = np.sqrt(kernel.eta[j]) * np.linalg.norm(beta[:, group])
    return strength


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

    settings: ExperimentSettings
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

    def kernels(self) -> dict[str, KernelSum]:
        """The three kernels that the figures compare, by name."""
        return {"true": self.true, "learned": self.learn().kernel, "full": self.full}

    def learn(self, lam: float | str | None = None) -> LearnedKernel:
        """k-hat as the reading scales it, at the lambda of the settings unless told otherwise."""
        return learn_kernel(
            self.history,
            self.true.base,
            lam=self.settings.lam if lam is None else lam,
            noise_std=self.settings.noise_std,
            strength=1.0,  # the paper's constant
            delta=self.settings.delta,
            weights=EtaWeights(self.settings.reading.scale, self.beta_min),
        )


def dictionary(settings: ExperimentSettings, inputs: int = 1) -> KernelDictionary:
    """The base kernels of Section 6 in one or two dimensions."""
    make = legendre if inputs == 1 else legendre_2d
    return make(settings.p, scaling=settings.reading.scaling)


def instance(
    settings: ExperimentSettings, streams: Streams, *, inputs: int = 1, m: int | None = None
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


def domain(settings: ExperimentSettings, inputs: int = 1) -> Array:
    """(k, inputs) grid on [-1, 1]^inputs."""
    axis = np.linspace(-1, 1, settings.grid)
    return np.stack(np.meshgrid(*[axis] * inputs, indexing="ij"), axis=-1).reshape(-1, inputs)


def new_coefficients(settings: ExperimentSettings, true: KernelSum, streams: Streams) -> Array:
    """(dim,) beta of a new function, drawn like a task of the meta-data."""
    rng, signs = streams.rng("objective"), settings.reading.signs
    return coefficients(true, norm=settings.norm, rng=rng, signs=signs)


def objective(settings: ExperimentSettings, true: KernelSum, Z: Array, streams: Streams) -> Array:
    """(k,) values at ``Z`` of a random function to maximise, drawn like a task of the meta-data.

    Where the reading minimises f, this is -f.
    """
    return settings.reading.sign * (true.features(Z) @ new_coefficients(settings, true, streams))


def theory_lambda(settings: ExperimentSettings) -> float:
    """The smallest lambda that Theorem 4.3 allows."""
    return lambda_min_paper(
        noise_std=settings.noise_std,
        m=settings.m,
        n=settings.n,
        p=settings.p,
        d_max=1,
        delta=settings.delta,
    )


def theory_nu(settings: ExperimentSettings, kernel: KernelSum) -> Array:
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


def paper_noise_var(settings: ExperimentSettings) -> Array:
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
