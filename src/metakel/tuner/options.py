"""What a run is begun with: a prior or a kernel, limits, and whatever decides what is asked."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from metakel._arrays import is_integer, is_number
from metakel.confidence import ConfidenceSequence
from metakel.errors import Hint, InputError
from metakel.learn import LearnedKernel
from metakel.optimize import GPUCB, Optimizer
from metakel.priors import Prior
from metakel.safe import Limited, PastOutputs, Range, SafeStart
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Space
from metakel.tuner.events import Configuration, digest, plain
from metakel.tuner.journal import FORMAT, VERSION

LOG = logging.getLogger("metakel")
READABLE = (1, VERSION)
START_HINT = Hint(
    "name configurations that you vouch for", "start=[{...}]", "--start name=value,name=value"
)
DELTA_HINT = Hint("accept a larger risk", "delta=...", "--delta")


@dataclass(frozen=True)
class RunLimits:
    """What a run must respect.

    Parameters
    ----------
    ranges : dict of Range
        By the names of outputs, the objective among them if it is limited.
    start : tuple of dict
        Configurations that the user vouches for; without them past tasks have to.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    start: tuple[Configuration, ...] = ()

    @classmethod
    def of(
        cls,
        limits: Mapping[str, Sequence[float | None]] | None,
        start: Sequence[Mapping[str, Any]] | None,
    ) -> RunLimits:
        """From pairs (smallest, largest) by the names of outputs; None for no limit."""
        ranges = {}
        for name, ends in dict(limits or {}).items():
            if not isinstance(ends, list | tuple) or len(ends) != 2:
                raise InputError(
                    f"the limit of {name!r} is {ends!r}; expected a pair (smallest, largest), with "
                    "None where there is no limit"
                )
            ranges[str(name)] = Range.of(f"limit of {name!r}", *ends)
        for name, allowed in ranges.items():
            if not allowed.bounded:
                raise InputError(f"the limit of {name!r} allows everything; leave it out")
        rows = tuple(plain(row) for row in start or ())
        if rows and not ranges:
            raise InputError("start is given without a limit; expected limits too")
        return cls(ranges, rows)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def header(self) -> dict[str, Any]:
        """What a journal notes; nothing where nothing is limited."""
        if not self:
            return {}
        limits = {name: allowed.to_list() for name, allowed in self.ranges.items()}
        return {"limits": limits, **({"start": list(self.start)} if self.start else {})}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> RunLimits:
        """Inverse of `header`."""
        return cls.of(header.get("limits"), header.get("start"))

    def __str__(self) -> str:
        return ", ".join(f"{name} {allowed}" for name, allowed in self.ranges.items())


def safe_optimizer(
    prior: Prior, limits: RunLimits, domain: Domain, *, rng: np.random.Generator, delta: float
) -> Optimizer:
    """A search that asks only for configurations that respect the limits.

    It decides by the confidence bounds of kernels learned from half of the past tasks, not by the
    mixture of the prior, which promises nothing of single configurations. With probability
    1 - delta all configurations that are ever asked for respect all limits.
    """
    _refuse_parameters(prior, limits)
    past = _past_of(prior)
    found = past.start(limits.ranges, domain, delta=delta)
    if not limits.start:
        _refuse_empty(found, domain)
    low, high = limits.ranges.get(past.names[0], Range()).to_list()
    return GPUCB(
        Limited(
            ConfidenceSequence(
                found.kernel,
                noise_std=found.outputs["objective"].noise_std,
                norm_bound=found.norm_bound,
                norm_of="kernel",
                centre=found.centre,
                delta=delta,
                delta_learning=found.delta if limits.start else 0.0,
            ),
            at_least=low,
            at_most=high,
            limits=found.limits(),
            start=list(limits.start) or found,
        ),
        domain,
        rng=rng,
        minimize=prior.info.minimize,
    )


def _refuse_parameters(prior: Prior, limits: RunLimits) -> None:
    for name in limits.ranges:
        if name in prior.space.names:
            raise InputError(
                f"{name!r} is a parameter ({prior.space[name].describe()}), and limits are about "
                "what is measured",
                Hint("hold it", f"fixed={{{name!r}: value}}", f"--fix {name}=VALUE"),
                Hint("learn with a smaller range", "space=...", "metakel learn --space"),
            )


def _past_of(prior: Prior) -> PastOutputs:
    if prior.past is None:
        raise InputError(
            "the prior has no records of measured outputs, which limits need",
            Hint(
                "learn it with them",
                "replace(prior, past=learn_outputs(...))",
                "metakel learn with --limit-output NAME, also for the objective itself",
            ),
        )
    return prior.past


def _refuse_empty(start: SafeStart, domain: Domain) -> None:
    """Say what is missing where past tasks vouch for no configuration at all."""
    if start.rank > start.tasks:
        raise InputError(
            f"{start.tasks} past tasks are left to vouch for the first configuration, and "
            f"{start.needed} are needed at this delta ({2 * (start.needed - start.tasks)} more "
            "past tasks, as half of them teach)",
            START_HINT,
            DELTA_HINT,
        )
    X = domain.start_points(np.random.default_rng(0)).X
    scores = start.score(X)
    if not (scores > start.level).any():
        best = domain.decode(X[int(np.argmax(scores))])
        raise InputError(
            f"past tasks vouch for no configuration: the safest is {best}, on average "
            f"{scores.max():.3g} standard deviations of past tasks within the limits, and more "
            f"than {start.level:.3g} are needed",
            START_HINT,
            DELTA_HINT,
        )


@dataclass(frozen=True)
class Candidates:
    """The only configurations that can be evaluated.

    Parameters
    ----------
    space : Space
    given : tuple of dict
        As the user listed them.
    """

    space: Space
    given: tuple[Configuration, ...]

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


class TuningSource:
    """A prior or a learned kernel, as a tuner sees it.

    Parameters
    ----------
    learned : Prior or LearnedKernel
    norm_bound : float or None
        For a learned kernel: B of `ConfidenceSequence`. With it, kernels that were not selected
        keep the weight that they can have (`LearnedKernel.confidence_kernel`).

    Attributes
    ----------
    space : Space
        Parameters and their recorded ranges.
    output : str
        What is measured.
    minimize : bool
        Whether small values are good.
    """

    space: Space

    def __init__(self, learned: Prior | LearnedKernel, norm_bound: float | None = None) -> None:
        self.learned, self.norm_bound = learned, norm_bound
        if isinstance(learned, Prior):
            if norm_bound is not None:
                raise InputError("norm_bound belongs to a learned kernel; a prior has its own")
            self.space = learned.space
            self.output, self.minimize = learned.info.output, learned.info.minimize
        elif isinstance(learned, LearnedKernel):
            space, report = (getattr(learned.history, name, None) for name in ("space", "report"))
            if space is None:
                raise InputError(
                    "the kernel was learned from a history without named parameters; expected one "
                    "that was read with names (History.from_csv, from_frame, ...)"
                )
            self.space = space
            self.output = "y" if report is None else str(report.output)
            self.minimize = report is not None and bool(report.minimize)
        else:
            raise InputError(
                f"prior is a {type(learned).__name__}; expected a Prior or a learned kernel: "
                "Prior.load(path) reads a prior that was saved, learn_prior(history) learns one, "
                "learn_kernel(history, base) learns a kernel"
            )

    @property
    def output_limits(self) -> dict[str, list[float]]:
        """What a journal notes of the limits of the output; nothing where one is infinite."""
        limits = self.learned.output_limits if isinstance(self.learned, Prior) else (-inf, inf)
        return {"outputs": list(limits)} if np.isfinite(limits).all() else {}

    @cached_property
    def digest(self) -> str:
        """Sixteen characters by which a journal knows what it was begun with.

        A prior is known by the runs it was learned from and by how: another number of threads, or
        another machine, rounds what is learned differently, and that is the same prior.
        """
        learned = self.learned
        if isinstance(learned, Prior):
            parts = (learned.task_gp is None, learned.calibration is None, learned.cold_weight)
            return digest([learned.space.to_dict(), asdict(learned.info), *parts])
        return digest([learned.kernel.to_json(), learned.noise_std, learned.delta, self.norm_bound])


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
    limits : RunLimits
        What every configuration must respect, and where to begin.
    space : Space or None
        Ranges and choices of this run, where they are not those of the past.
    """

    seed: int = 0
    delta: float = 0.2
    fixed: Mapping[str, Any] = field(default_factory=dict)
    extrapolate: bool = False
    candidates: Candidates | None = None
    task: str = ""
    command: tuple[str, ...] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    space: Space | None = None

    def __post_init__(self) -> None:
        if not is_integer(self.seed) or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}; expected a whole number >= 0")
        if not (is_number(self.delta) and 0 < self.delta < 1):
            raise InputError(f"delta is {self.delta!r}; expected a number between 0 and 1")
        if (self.fixed or self.space is not None) and self.candidates is not None:
            what = f"fixed = {dict(self.fixed)}" if self.fixed else "narrower ranges"
            raise InputError(
                f"{what} beside candidates; expected one of the two: leave the other candidates "
                "out instead"
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
            **source.output_limits,
            "seed": self.seed,
            "delta": self.delta,
            "fixed": dict(self.fixed),
            "outside": self.extrapolate,
            "candidates": None if self.candidates is None else self.candidates.digest,
            **({} if self.space is None else {"ranges": self.space.to_dict()}),
            **self.limits.header(),
            # What tells this task from another one of the same prior, as far as it is known.
            **({"task": self.task} if self.task else {}),
            **({"command": list(self.command)} if self.command else {}),
        }

    def refuse_another(self, source: TuningSource, found: Mapping[str, Any], where: str) -> None:
        """A journal goes on only with the prior and the options that it began with."""
        was, now = RunLimits.from_header(found), self.limits
        if was.header() != now.header():
            # Whoever goes on without a limit would ask for what the run must not try.
            begun, given = (
                f"the limits {limits}" if limits else "no limits" for limits in (was, now)
            )
            raise InputError(
                f"{where} was begun with {begun}, and this run has {given}, or other "
                "configurations to start from; expected the same in all of a journal"
            )
        expected = self.header(source)
        for name in ("outputs", "task", "command"):  # not every journal says these
            if name not in found:
                expected.pop(name, None)
        if "ranges" in found and self.space is None:
            raise InputError(
                f"{where} was begun with other ranges than those of the prior; go on with the same "
                "or begin another journal"
            )
        for name, wanted in expected.items():
            # JSON keeps no tuples, so both sides are compared as they are stored.
            if name == "version" or json.loads(json.dumps(wanted)) == found.get(name):
                continue
            if name in ("task", "command"):
                raise _another_task(where, name, found[name], wanted)
            what = "another prior" if name == "prior" else f"{name} = {found.get(name)!r}"
            raise InputError(
                f"{where} was begun with {what}; go on with the same or begin another journal"
            )

    def optimizer(self, source: TuningSource) -> Optimizer:
        """What decides: the same for the same source and options, in every process."""
        rng, learned, space = np.random.default_rng(self.seed), source.learned, source.space
        rows = None
        if self.candidates is not None:
            rows = [space.normalise(row) for row in self.candidates.rows]
        if isinstance(learned, Prior) and not self.limits:
            return learned.optimizer(
                rows,
                rng=rng,
                fixed=self.fixed,
                extrapolate=self.extrapolate,
                delta=self.delta,
                space=self.space,
            )
        if self.limits and self.extrapolate:
            raise InputError(
                "extrapolate beside limits: past tasks vouch for nothing beyond recorded ranges"
            )
        domain: Domain = SearchSpace(self.space or space, space, dict(self.fixed), self.extrapolate)
        if rows is not None:
            X = space.encode(rows, extrapolate=self.extrapolate)
            domain = CandidateTable.of(rows, X, space)
        if isinstance(learned, Prior):
            return safe_optimizer(learned, self.limits, domain, rng=rng, delta=self.delta)
        if self.limits:
            raise InputError(
                "limits need a prior with records of past outputs; for a learned kernel, "
                "metakel.safe.Limited(sequence, limits={...}) takes a Limit with its own kernel"
            )
        bound = source.norm_bound
        return GPUCB(
            ConfidenceSequence(
                learned.kernel if bound is None else learned.confidence_kernel(bound),
                noise_std=learned.noise_std,
                norm_bound=bound,
                norm_of="truth" if bound is None else "kernel",
                delta=self.delta,
                delta_learning=learned.delta,
            ),
            domain,
            rng=rng,
            minimize=source.minimize,
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
