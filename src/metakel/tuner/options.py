"""What a journal begins with: everything that decides which configurations are asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from metakel._arrays import is_number
from metakel.errors import Hint, InputError
from metakel.optimize import Optimizer
from metakel.tuner.candidates import Candidates
from metakel.tuner.journal import FORMAT
from metakel.tuner.source import TuningSource

VERSION = 1


@dataclass(frozen=True)
class RunOptions:
    """Choices that hold for the life of a journal.

    Parameters
    ----------
    seed : int
        With the events of the journal, it decides every configuration.
    delta : float
        Probability with which the certificate may fail.
    fixed : dict
        Parameters held at a value.
    extrapolate : bool
        Whether values beyond the recorded ranges are allowed.
    candidates : Candidates or None
        The only configurations that can be evaluated, if they are few.
    task : str
        A name of the task, if it has one.
    command : tuple of str
        The command that is tuned, with its placeholders, if there is one.
    """

    seed: int = 0
    delta: float = 0.2
    fixed: Mapping[str, Any] = field(default_factory=dict)
    extrapolate: bool = False
    candidates: Candidates | None = None
    task: str = ""
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        _check_delta(self.delta)
        if self.fixed and self.candidates is not None:
            raise InputError(
                f"fixed = {dict(self.fixed)} beside candidates; expected one of the two: leave the "
                "other candidates out instead"
            )
        # As JSON keeps them, whatever type of number they came as.
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "delta", float(self.delta))

    def header(self, source: TuningSource) -> dict[str, Any]:
        """The first event of a journal."""
        return {
            "event": "started",
            "format": FORMAT,
            "version": VERSION,
            "prior": source.digest,
            "output": source.output,
            "minimize": source.minimize,
            "space": source.space.to_dict(),
            "seed": self.seed,
            "delta": self.delta,
            "fixed": dict(self.fixed),
            "outside": self.extrapolate,
            "candidates": None if self.candidates is None else self.candidates.digest,
            **self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        """What tells this task from another one of the same prior, as far as it is known."""
        known = {"task": self.task, "command": list(self.command)}
        return {name: value for name, value in known.items() if value}

    def refuse_another(self, source: TuningSource, found: Mapping[str, Any], where: str) -> None:
        """A journal goes on only with the prior and the options that it began with."""
        expected, noted = self.header(source), found.get("candidates")
        if self.candidates is not None and self.candidates.begun_with(noted):
            expected["candidates"] = noted
        for name, value in self._identity().items():
            del expected[name]
            if name in found and found[name] != value:
                raise _another_task(where, name, found[name], value)
        refuse_differences(expected, found, where)

    def optimizer(self, source: TuningSource) -> Optimizer:
        """What decides: the same for the same source and options, in every process."""
        return source.optimizer(
            rng=np.random.default_rng(self.seed),
            candidates=None if self.candidates is None else self.candidates.points,
            fixed=self.fixed,
            extrapolate=self.extrapolate,
            delta=self.delta,
        )


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed is {seed!r}; expected a whole number >= 0")


def _check_delta(delta: Any) -> None:
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta is {delta!r}; expected a number between 0 and 1")


def _another_task(where: str, name: str, begun: Any, given: Any) -> InputError:
    """Values of two tasks in one journal would be compared with each other."""
    was, now = (shlex.join(map(str, v)) if isinstance(v, list) else repr(v) for v in (begun, given))
    return InputError(
        f"{where} was begun with the {name} {was}, and this run has the {name} {now}; expected one "
        "task in a journal, as values of two cannot be compared",
        Hint("begin another journal", "Tuner(prior, another_path)", "--journal PATH"),
        Hint("if it is the same task, go on", f"{name}={begun!r}", "--same-task"),
    )


def check_header(found: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any]:
    """The first event, if it is the beginning of a journal."""
    first = found[0] if found else {}
    if (first.get("event"), first.get("format")) != ("started", FORMAT):
        begins = f"begins with the event {first['event']!r}" if first else "holds no event"
        raise InputError(
            f"{where} is not a journal: it {begins}; expected 'started' of {FORMAT}, with which "
            "`metakel suggest --journal`, `metakel tune` and Tuner(prior, path) begin one"
        )
    if first.get("version") != VERSION:
        raise InputError(
            f"{where} is a journal of version {first.get('version')!r}; this one reads {VERSION}"
        )
    return first


def refuse_differences(expected: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
    """A journal goes on only with the prior and the settings that it began with."""
    for name, wanted in expected.items():
        # JSON keeps no tuples, so both sides are compared as they are stored.
        if json.loads(json.dumps(wanted)) != found.get(name):
            what = "another prior" if name == "prior" else f"{name} = {found.get(name)!r}"
            raise InputError(
                f"{where} was begun with {what}; go on with the same or begin another journal"
            )
