"""What a journal begins with: everything that decides which configurations are asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

from metakel.confidence.settings import is_number
from metakel.errors import InputError
from metakel.prior import Prior
from metakel.prior.storage import to_dict
from metakel.tuner.journal import FORMAT
from metakel.tuner.trials import Configuration, key

VERSION = 1


@dataclass(frozen=True)
class Settings:
    """Choices that hold for the life of a journal.

    Parameters
    ----------
    seed : int
        With the events of the journal, it decides every configuration.
    delta : float
        Probability with which the certificate may fail.
    fixed : dict
        Parameters held at a value.
    outside : bool
        Whether values beyond the recorded ranges are allowed.
    candidates : tuple of dict or None
        The only configurations that can be evaluated, if they are few.
    """

    seed: int = 0
    delta: float = 0.2
    fixed: Mapping[str, Any] = field(default_factory=dict)
    outside: bool = False
    candidates: tuple[Configuration, ...] | None = None

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        _check_delta(self.delta)
        if self.candidates is not None and not self.candidates:
            raise InputError("candidates is empty; expected at least one configuration")
        if self.fixed and self.candidates is not None:
            raise InputError(
                f"fixed = {dict(self.fixed)} beside candidates; expected one of the two: leave the "
                "other candidates out instead"
            )
        # As JSON keeps them, whatever type of number they came as.
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "delta", float(self.delta))

    @cached_property
    def rows(self) -> dict[str, int]:
        """Where each candidate stands."""
        return {key(row): i for i, row in enumerate(self.candidates or ())}

    def header(self, prior: Prior) -> dict[str, Any]:
        """The first event of a journal."""
        rows = self.candidates
        return {
            "event": "started",
            "format": FORMAT,
            "version": VERSION,
            "prior": _digest(to_dict(prior)),
            "output": prior.facts.output,
            "minimize": prior.facts.minimize,
            "space": prior.space.to_dict(),
            "seed": self.seed,
            "delta": self.delta,
            "fixed": dict(self.fixed),
            "outside": self.outside,
            "candidates": None if rows is None else _digest([dict(row) for row in rows]),
        }


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed is {seed!r}; expected a whole number >= 0")


def _check_delta(delta: Any) -> None:
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta is {delta!r}; expected a number between 0 and 1")


def check_header(found: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any]:
    """The first event, if it is the beginning of a journal."""
    first = found[0] if found else {}
    mark = (first.get("event"), first.get("format"), first.get("version"))
    if mark != ("started", FORMAT, VERSION):
        raise InputError(f"{where} begins with {mark}; expected ('started', {FORMAT!r}, {VERSION})")
    return first


def refuse_differences(expected: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
    """A journal goes on only with the prior and the settings that it began with."""
    for name, wanted in expected.items():
        # JSON keeps no tuples, so both sides are compared as they are stored.
        if json.dumps(wanted, sort_keys=True) != json.dumps(found.get(name), sort_keys=True):
            what = "another prior" if name == "prior" else f"{name} = {found.get(name)!r}"
            raise InputError(
                f"{where} was begun with {what}; go on with the same or begin another journal"
            )


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
