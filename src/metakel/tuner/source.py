"""What a run is begun with: the source of its decisions, and choices that hold for all of it.

A source is a prior, a learned kernel, or whatever else makes an optimizer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metakel._arrays import Array, is_integer, probability, shown
from metakel.confidence import ConfidenceSequence
from metakel.errors import Hint, InputError
from metakel.learn import LearnedKernel
from metakel.library import as_prior
from metakel.optimize import GPUCB, Optimizer, Trial
from metakel.optimize.model import Model
from metakel.priors import Prior
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Parameter, Space
from metakel.tuner.fold import Configuration
from metakel.tuner.journal import FORMAT, VERSION
from metakel.tuner.store import Scale

LOG = logging.getLogger("metakel")


class Source(ABC):
    """What a tuner knows of whatever decides.

    A source that promises something of what it asks for says so in words: `rules` for the journal,
    `promise` before the first evaluation, `remarks` after each, `account` for the report.
    """

    anywhere: ClassVar[bool] = False  # whether runs count that were done beyond the space
    delta: ClassVar[float] = 0.2  # by default, the probability with which a promise may fail

    @property
    @abstractmethod
    def space(self) -> Space:
        """Parameters and their recorded ranges."""

    @property
    @abstractmethod
    def output(self) -> str:
        """What is measured."""

    @property
    @abstractmethod
    def minimize(self) -> bool:
        """Whether small values are good."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Sixteen characters by which a journal knows what it was begun with."""

    @abstractmethod
    def optimizer(self, options: RunOptions) -> Optimizer:
        """What decides: the same for the same source and options, in every process."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the past tasks, where they are known."""
        return ()

    @property
    def scale(self) -> Scale:
        """That of the output, as past tasks have it."""
        return Scale(self.output)

    @property
    def rules(self) -> Mapping[str, Any]:
        """What every configuration has to respect, as JSON; empty where anything may be tried.

        ``text`` has it in words, and ``outputs`` what has to be measured beside the output.
        """
        return {}

    @property
    def others(self) -> tuple[str, ...]:
        """What has to be measured beside the output."""
        return tuple(self.rules.get("outputs", ()))

    @property
    def identity(self) -> dict[str, Any]:
        """What a journal notes, so that it goes on with the same source only."""
        return {
            "prior": self.digest,
            "output": self.output,
            "minimize": self.minimize,
            "space": self.space.to_dict(),
            **self.scale.header,
            **({"rules": dict(self.rules)} if self.rules else {}),
            **({"anywhere": True} if self.anywhere else {}),
        }

    def promise(self, delta: float) -> str:
        """What is promised of all that will be asked for; empty where nothing is."""
        return ""

    def remarks(self, trials: Sequence[Trial], number: int) -> list[str]:
        """What to say of the value of a trial, beside the value."""
        return []

    def account(
        self, trials: Sequence[Trial], models: tuple[Model, Model], points: Array, delta: float
    ) -> tuple[str, list[tuple[str, ...]]]:
        """How a run kept the rules: a text, and rows of a table with their titles first.

        ``models`` are those before and after it, and ``points`` (n, d0) stand for all.
        """
        return "", []


@dataclass(frozen=True, eq=False)
class PriorSource(Source):
    """A prior, as a tuner sees it."""

    prior: Prior
    anywhere: ClassVar[bool] = True

    @property
    def space(self) -> Space:
        return self.prior.space

    @property
    def output(self) -> str:
        return self.prior.info.output

    @property
    def minimize(self) -> bool:
        return self.prior.info.minimize

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.prior.info.tasks

    @property
    def scale(self) -> Scale:
        best = self.prior.best_runs
        if best is None:
            values = np.array([self.prior.scale.value(self.prior.model.level)])
        else:
            values = np.concatenate([best.values, best.typical])
        usual = float(values.min()), float(values.max())
        return Scale(self.output, self.prior.output_range, usual)

    @cached_property
    def digest(self) -> str:
        """A prior is known by the runs it was learned from and by how.

        Another number of threads, or another machine, rounds what is learned differently, and that
        is the same prior.
        """
        prior = self.prior
        parts = (prior.task_gp is None, prior.calibration is None, prior.beside.cold_weight)
        return digest([prior.space.to_dict(), asdict(prior.info), *parts])

    def optimizer(self, options: RunOptions) -> Optimizer:
        for p in () if options.space is None else options.space.parameters:
            self._refuse_new_choices(p)
        return self.prior.optimizer(
            options.rows,
            rng=np.random.default_rng(options.seed),
            fixed=options.fixed,
            extrapolate=options.extrapolate,
            delta=options.delta,
            space=options.space,
        )

    def _refuse_new_choices(self, parameter: Parameter) -> None:
        known = self.space[parameter.name].choices
        new = [value for value in parameter.choices if known and value not in known]
        if new:
            raise InputError(
                f"choice {new[0]!r} of {parameter.name!r}, which no past task had; expected some "
                f"of {', '.join(map(repr, known))}. A run asks for choices of its prior only: "
                "learn it with a space that lists this one, or hold it by fixed={...} with "
                "extrapolate=True"
            )


@dataclass(frozen=True, eq=False)
class KernelSource(Source):
    """A kernel that was learned from a history with named parameters, for `Tuner`.

    Parameters
    ----------
    learned : LearnedKernel
    norm_bound : float
        B of `ConfidenceSequence`, which says how large kernels can be that were not selected.
    """

    learned: LearnedKernel
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if self._said("space") is None:
            raise InputError(
                "the kernel was learned from a history without named parameters; expected one "
                "that was read with names (History.from_csv, from_frame, ...)"
            )
        if self.norm_bound is None:
            raise InputError(
                "a learned kernel needs norm_bound, which says how large the kernels can be "
                f"that were not selected{_usual_norm(self.learned)}: "
                "Tuner(KernelSource(learned, norm_bound=...))"
            )

    @property
    def space(self) -> Space:
        space: Space = self._said("space")
        return space

    @property
    def output(self) -> str:
        report = self._said("report")
        return "y" if report is None else str(report.output)

    @property
    def minimize(self) -> bool:
        report = self._said("report")
        return report is not None and bool(report.minimize)

    def _said(self, name: str) -> Any:
        """What the history says; a scan of files has no names."""
        return getattr(self.learned.history, name, None)

    @cached_property
    def digest(self) -> str:
        learned = self.learned
        kernel = learned.confidence_kernel(self.norm_bound)
        return digest([kernel.to_json(), learned.noise_std, learned.delta, self.norm_bound])

    def optimizer(self, options: RunOptions) -> Optimizer:
        return GPUCB(
            ConfidenceSequence(self.learned, norm_bound=self.norm_bound, delta=options.delta),
            named_domain(self.space, options),
            rng=np.random.default_rng(options.seed),
            minimize=self.minimize,
        )


def _usual_norm(learned: LearnedKernel) -> str:
    if learned.problem.kernel_mode or not learned.active.size:
        return ""
    return f"; past tasks have {learned.typical_norm:.3g} (root mean square), twice that is usual"


def named_domain(space: Space, options: RunOptions) -> Domain:
    """Where a run searches: the candidates, or the space within its ranges."""
    rows = options.rows
    if rows is not None:
        X = space.encode(rows, extrapolate=options.extrapolate)
        return CandidateTable.of(rows, X, space)
    return SearchSpace(options.space or space, space, dict(options.fixed), options.extrapolate)


def as_source(learned: Source | Prior | LearnedKernel | str | Path) -> Source:
    """The source that a prior or a learned kernel is; also by a path or ``library:name``."""
    if isinstance(learned, str | Path):
        return PriorSource(as_prior(learned))
    if isinstance(learned, Source):
        return learned
    if isinstance(learned, Prior):
        return PriorSource(learned)
    if isinstance(learned, LearnedKernel):
        return KernelSource(learned)
    raise InputError(
        f"prior is a {type(learned).__name__}; expected a Prior or its path, a learned kernel, a "
        "source, or a name such as 'library:lightgbm'. Prior.load(path) reads a prior that was "
        "saved, learn_prior(history) learns one, learn_kernel(history, base) learns a kernel"
    )


def plain(configuration: Mapping[str, Any]) -> Configuration:
    """Values as the user gave them and as JSON keeps them: numbers of numpy become Python's."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"a configuration is a dict of named values; found {configuration!r}")
    return {str(k): _of_numpy(k, v) if hasattr(v, "item") else v for k, v in configuration.items()}


def _of_numpy(name: str, value: Any) -> Any:
    if np.ma.is_masked(value):  # its item is 0.0
        raise InputError(f"parameter {name!r} is masked: it is missing; expected a value")
    return value.item() if getattr(value, "size", 1) == 1 else value


def digest(data: Any) -> str:
    """Sixteen characters that differ for different data."""
    text = json.dumps(data, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# What is possible may change from one question to the next, as what is in stock.
OF_A_QUESTION = {"fixed": "parameters held fixed", "ranges": "ranges and choices of its own"}
# What is usual follows from the prior, up to rounding.
MAY_DIFFER = {"version", "rules", "usual", *OF_A_QUESTION}
NOT_ALWAYS = {"output_range", "task", "command", "anywhere"}  # in every journal


@dataclass(frozen=True)
class Candidates:
    """The only configurations that can be evaluated."""

    space: Space
    given: tuple[Configuration, ...]  # as the user listed them

    def __post_init__(self) -> None:
        if not self.given:
            raise InputError("candidates is empty; expected at least one configuration")
        if twice := len(self.given) - len(self.rows):
            text = "%d of %d candidates are listed more than once; each is asked once"
            LOG.info(text, twice, len(self.given))

    @classmethod
    def of(cls, candidates: Any, space: Space) -> Candidates:
        """From a frame or a sequence of dicts."""
        return cls(space, tuple(plain(row) for row in space.rows(candidates)))

    @cached_property
    def _by_key(self) -> dict[str, Configuration]:
        distinct: dict[str, Configuration] = {}
        for row in self.given:
            distinct.setdefault(self.space.key(row), row)
        return distinct

    @property
    def rows(self) -> tuple[Configuration, ...]:
        """Distinct ones, as they were first listed."""
        return tuple(self._by_key.values())

    def as_listed(self, configuration: Mapping[str, Any]) -> Configuration:
        """A configuration as it was listed; refused if it was not."""
        found = self._by_key.get(self.space.key(configuration))
        if found is None:
            raise InputError(f"{dict(configuration)} is not among the {len(self.rows)} candidates")
        return dict(found)

    def all_among(self, configurations: Sequence[Mapping[str, Any]]) -> bool:
        """Whether every candidate is one of these."""
        return self._by_key.keys() <= {self.space.key(row) for row in configurations}

    @cached_property
    def digest(self) -> str:
        """What a journal notes of them: equal for lists of equal configurations."""
        return digest(list(self._by_key))


@dataclass(frozen=True)
class RunTask:
    """What tells a task from another one of the same prior, as far as it is known.

    Parameters
    ----------
    name : str
        Of the task, if it has one.
    command : tuple of str
        The command that is tuned, with its placeholders, if there is one.
    """

    name: str = ""
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"task is {shown(self.name)}; expected its name, as text")
        object.__setattr__(self, "command", tuple(self.command))

    @property
    def header(self) -> dict[str, Any]:
        """What a journal notes of it."""
        found = {"task": self.name, "command": list(self.command)}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def of(cls, task: str | RunTask) -> RunTask:
        """By its name alone."""
        return task if isinstance(task, cls) else cls(task)  # type: ignore[arg-type]

    @classmethod
    def of_journal(cls, header: Mapping[str, Any]) -> RunTask:
        """The one that a journal was begun with."""
        return cls(str(header.get("task", "")), tuple(header.get("command", ())))


@dataclass(frozen=True)
class RunOptions:
    """Choices that hold for the life of a journal, except for ``fixed`` and ``space``."""

    seed: int = 0  # with the events of the journal, it decides every configuration
    delta: float = 0.2  # probability with which the certificate may fail
    fixed: Mapping[str, Any] = field(default_factory=dict)  # held in what is asked from now on
    extrapolate: bool = False  # whether values beyond the recorded ranges are allowed
    candidates: Candidates | None = None
    task: RunTask = field(default_factory=RunTask)
    space: Space | None = None  # of what is asked from now on, where it is not that of the past

    def __post_init__(self) -> None:
        if not is_integer(self.seed) or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}; expected a whole number >= 0")
        delta = probability("delta", self.delta)
        if (self.fixed or self.space is not None) and self.candidates is not None:
            what = f"fixed = {dict(self.fixed)}" if self.fixed else "narrower ranges"
            raise InputError(
                f"{what} beside candidates; expected one of the two: leave the other candidates "
                "out instead"
            )
        # As JSON keeps them, whatever type of number they came as.
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "delta", delta)

    @property
    def rows(self) -> list[Configuration] | None:
        """The candidates, each once; None where the whole space is searched."""
        listed = self.candidates
        return None if listed is None else [listed.space.normalize(row) for row in listed.rows]

    def header(self, source: Source) -> dict[str, Any]:
        """The first event of a journal."""
        return {
            "event": "started",
            "format": FORMAT,
            "version": VERSION,
            **source.identity,
            "seed": self.seed,
            "delta": self.delta,
            "fixed": dict(self.fixed),
            "outside": self.extrapolate,
            "candidates": None if self.candidates is None else self.candidates.digest,
            **({} if self.space is None else {"ranges": self.space.to_dict()}),
            **self.task.header,
        }

    @classmethod
    def of_journal(cls, header: Mapping[str, Any], candidates: Candidates | None) -> RunOptions:
        """Those that a journal was begun with; it has no list of the candidates."""
        return cls(
            int(header["seed"]),
            float(header["delta"]),
            dict(header["fixed"]),
            bool(header["outside"]),
            candidates,
            RunTask.of_journal(header),
            Space.from_dict(header["ranges"]) if "ranges" in header else None,
        )

    def refuse_another(self, source: Source, found: Mapping[str, Any], where: str) -> None:
        """A journal goes on only with the prior and the options that it began with."""
        expected = json.loads(json.dumps(self.header(source)))  # JSON keeps no tuples
        was, now = found.get("rules", {}), expected.get("rules", {})
        if was != now:
            # Whoever goes on without a rule would ask for what the run must not try.
            begun, given = (rules.get("text", "no rule to respect") for rules in (was, now))
            raise InputError(
                f"{where} was begun with {begun}, and this run has {given}, or other "
                "configurations to start from; expected the same in all of a journal"
            )
        for name, what in OF_A_QUESTION.items():
            if found.get(name) and found[name] != expected.get(name):
                LOG.warning("%s was begun with %s, which this run does not have", where, what)
        for name, wanted in expected.items():
            lacking = name not in found and name in NOT_ALWAYS
            if lacking or name in MAY_DIFFER or wanted == found.get(name):
                continue
            if name in ("task", "command"):
                raise _another_task(where, name, found[name], wanted)
            what = "another prior" if name == "prior" else f"{name} = {found.get(name)!r}"
            raise InputError(
                f"{where} was begun with {what}; go on with the same or begin another journal"
            )


def _differing(begun: Any, given: Any) -> tuple[str, str]:
    """Both as text; of commands with as many words, those that differ."""
    if not isinstance(begun, list) or not isinstance(given, list):
        return repr(begun), repr(given)
    pairs = list(zip(begun, given, strict=False))
    if len(begun) == len(given) and len(pairs) > 1:
        pairs = [(one, other) for one, other in pairs if one != other]
        begun, given = (["...", *words, "..."] for words in zip(*pairs, strict=True))
    return shlex.join(map(str, begun)), shlex.join(map(str, given))


def _another_task(where: str, name: str, begun: Any, given: Any) -> InputError:
    """Values of two tasks in one journal would be compared with each other."""
    was, now = _differing(begun, given)
    return InputError(
        f"{where} was begun with the {name} {was}, and this run has the {name} {now}; expected one "
        "task in a journal, as values of two cannot be compared",
        Hint("begin another journal", "Tuner(prior, another_path)", "--journal PATH"),
        Hint("if it is the same task, go on", f"{name}={begun!r}", "--same-task"),
    )
