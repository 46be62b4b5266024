"""GP-UCB (Eq. 11): the next point maximises an upper bound of the objective."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import InputError
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.certified import CertifiedModel
from metakel.optimize.model import Model
from metakel.optimize.optimizer import Optimizer
from metakel.search import Domain
from metakel.search.named import as_domain
from metakel.space import Space


class Assumptions(Protocol):
    """What is assumed of the objective, and of other outputs."""

    def as_model(self, domain: Domain, *, minimize: bool, probes: int) -> Model:
        """The model of a domain, in the sign to be maximised."""
        ...


def GPUCB(
    sequence: ConfidenceSequence | Assumptions,
    domain: Domain | Space,
    *,
    rng: np.random.Generator | None = None,
    seed: int | None = None,
    acquisition: str | Acquisition = "ucb",
    minimize: bool = False,
    stop_at: float | None = None,
    probes: int = 0,
) -> Optimizer:
    """An `Optimizer` that maximises the upper confidence bound of a kernel's functions (Eq. 11).

    The next point maximises the upper bound. Points that were asked for and not observed yet are
    pending: the next ones are chosen as if they had been observed, at a value that changes no mean.

    Parameters
    ----------
    sequence : ConfidenceSequence or FixedWidth, or another that makes a model
        What is assumed of the objective: usually a sequence of a learned kernel, before its first
        observation. With ``on_alarm="stop"``, `ask` raises `Alarm` after an alarm until
        `Optimizer.accept_alarm` is called, and then goes on like "widen". On a finite domain its
        sets are intersected over time.
    domain : Domain or Space
        `box`, `grid` or `candidates`, within the domain of the base kernels; or a space of named
        parameters, whose numeric inputs lie in [-1, 1].
    rng, seed : Generator or int, optional
        Draws the start of the search and breaks ties; by default always the same.
    acquisition : str or callable
        See `Optimizer`.
    minimize : bool
        True to minimise.
    stop_at : float, optional
        See `Optimizer`.
    probes : int
        How many points, after the first one, go where all base kernels know least, among those
        that may be asked for. GP-UCB alone looks where its kernel fits, and the alarm hardly
        ever notices a missing one. 4 to 8 make it notice, at the price of some regret
        (``docs/promises.md``).
    """
    domain = as_domain(domain)
    model: Model
    if isinstance(sequence, ConfidenceSequence):
        model = CertifiedModel.of(sequence, domain, minimize=minimize, probes=probes)
    elif hasattr(sequence, "as_model"):
        model = sequence.as_model(domain, minimize=minimize, probes=probes)
    else:
        raise InputError(
            f"sequence is a {type(sequence).__name__}; expected what is assumed of the objective, "
            "as mk.ConfidenceSequence(kernel, noise_std=..., norm_bound=...) states it"
        )
    return Optimizer(
        model,
        domain,
        rng=rng,
        seed=seed,
        acquisition=acquisition,
        minimize=minimize,
        stop_at=stop_at,
    )
