"""What an optimizer remembers: the points it asked for and what it was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from metakel._arrays import Array
from metakel.confidence.observations import Batch, ObservationLog
from metakel.errors import InputError
from metakel.optimize.events import Event
from metakel.search import Domain


@dataclass(frozen=True, eq=False)
class Memory:
    """Everything that happened so far, and what follows from it.

    Parameters
    ----------
    domain : Domain
    sign : float
        1 to maximise, -1 to minimise: what the values of the user are multiplied with.
    pending : (q, d0) array
        Asked, and neither told nor forgotten.
    told : ObservationLog
        In the sign to be maximised.
    log : tuple of Event
        In the sign of the user.
    """

    domain: Domain
    sign: float
    pending: Array
    told: ObservationLog = field(default_factory=ObservationLog)
    log: tuple[Event, ...] = ()

    @classmethod
    def empty(cls, domain: Domain, *, maximize: bool) -> Memory:
        return cls(domain, 1.0 if maximize else -1.0, np.zeros((0, domain.d0)))

    @property
    def X(self) -> Array:
        """(t, d0) where it was told."""
        return np.concatenate([np.zeros((0, self.domain.d0)), *(b.X for b in self.told.batches)])

    @property
    def y(self) -> Array:
        """(t,) what it was told, in the sign of the user."""
        return self.sign * np.concatenate([np.zeros(0), *(b.y for b in self.told.batches)])

    @property
    def noise_std(self) -> Array:
        """(t,) noise of every observation."""
        return np.concatenate([np.zeros(0), *(b.noise_std for b in self.told.batches)])

    @property
    def supply(self) -> float:
        """How many more points may be asked."""
        if self.domain.repeat:
            return np.inf
        return self.domain.unused(np.concatenate([self.X, self.pending]))

    def excluded(self, pending: Array) -> Array:
        """(k, d0) points not to ask for beside ``pending`` (q, d0): these, as far as possible."""
        if not self.domain.repeat:
            return np.concatenate([pending, self.X])
        return pending if self.domain.unused(pending) else pending[:0]

    def with_asked(self, X: Array) -> Memory:
        """After points ``X`` (n, d0) were asked."""
        pending = np.concatenate([self.pending, X])
        return replace(self, pending=pending, log=(*self.log, Event("asked", X)))

    def with_told(self, batch: Batch) -> Memory:
        """After a batch in the sign to be maximised was told."""
        pending = self.pending
        for point in batch.X if len(pending) else ():
            pending = self._without(pending, point)
        event = Event("told", batch.X, self.sign * batch.y, batch.noise_std)
        told = self.told.with_batch(batch)
        return replace(self, pending=pending, told=told, log=(*self.log, event))

    def with_forgotten(self, X: Array) -> Memory:
        """After pending points ``X`` (n, d0) were given up."""
        pending = self.pending
        for point in X:
            left = self._without(pending, point)
            if len(left) == len(pending):
                raise InputError(f"forget: the point {point.tolist()} is not pending")
            pending = left
        return replace(self, pending=pending, log=(*self.log, Event("forgotten", X)))

    def replayed(self, events: Iterable[Event]) -> Memory:
        """After these events, too."""
        memory = self
        for event in events:
            if event.kind == "asked":
                memory = memory.with_asked(event.X)
            elif event.kind == "forgotten":
                memory = memory.with_forgotten(event.X)
            else:
                assert event.y is not None
                assert event.noise_std is not None
                memory = memory.with_told(Batch(event.X, self.sign * event.y, event.noise_std))
        return memory

    def _without(self, pending: Array, point: Array) -> Array:
        """Pending points with one that is the same as ``point`` removed, if there is one."""
        same = self.domain.same(pending, point[None])[:, 0]
        return np.delete(pending, np.argmax(same), axis=0) if same.any() else pending
