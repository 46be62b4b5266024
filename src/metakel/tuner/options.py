"""What a run is begun with: a prior or a kernel, limits, and whatever decides what is asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from numbers import Integral
from typing import Any

import numpy as np

from metakel._arrays import is_number
from metakel.errors import Hint, InputError
from metakel.learn import LearnedKernel
from metakel.optimize import GPUCB, Optimizer
from metakel.optimize.limits import Range
from metakel.optimize.start_set import SafeStart
from metakel.priors import PastOutputs, Prior
from metakel.priors.storage import to_version_1
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Space
from metakel.tuner.configurations import Candidates, Configuration, digest, plain
from metakel.tuner.journal import FORMAT, VERSION

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
        found.kernel,
        domain,
        rng=rng,
        noise_std=found.outputs["objective"].noise_std,
        norm_bound=found.norm_bound,
        norm_of="kernel",
        centre=found.centre,
        at_least=low,
        at_most=high,
        limits=found.limits(),
        start=list(limits.start) or found,
        delta=delta,
        # The norm bounds are those of the start set, whose delta counts where they are used.
        delta_learning=found.delta if limits.start else 0.0,
        maximize=not prior.info.minimize,
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


READABLE = (1, VERSION)


@dataclass(frozen=True, eq=False)
class TuningSource:
    """A prior or a learned kernel, as a tuner sees it.

    Parameters
    ----------
    learned : Prior or LearnedKernel
    norm_bound : float or None
        For a learned kernel: B of `ConfidenceSequence`. With it, kernels that were not selected
        keep the weight that they can have (`LearnedKernel.confidence_kernel`).
    """

    learned: Prior | LearnedKernel
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.learned, Prior | LearnedKernel):
            raise InputError(
                f"prior is a {type(self.learned).__name__}; expected a Prior or a learned kernel: "
                "Prior.load(path) reads a prior that was saved, learn_prior(history) learns one, "
                "learn_kernel(history, base) learns a kernel"
            )
        if isinstance(self.learned, Prior) and self.norm_bound is not None:
            raise InputError("norm_bound belongs to a learned kernel; a prior has its own")
        if self._history_space is None:
            raise InputError(
                "the kernel was learned from a history without named parameters; expected one that "
                "was read with names (History.from_csv, from_frame, ...)"
            )

    @property
    def _history_space(self) -> Space | None:
        if isinstance(self.learned, Prior):
            return self.learned.space
        return getattr(self.learned.history, "space", None)

    @property
    def space(self) -> Space:
        """Parameters and their recorded ranges."""
        found = self._history_space
        assert found is not None  # checked above
        return found

    @property
    def output(self) -> str:
        """What is measured."""
        if isinstance(self.learned, Prior):
            return self.learned.info.output
        report = getattr(self.learned.history, "report", None)
        return "y" if report is None else str(report.output)

    @property
    def minimize(self) -> bool:
        """Whether small values are good."""
        if isinstance(self.learned, Prior):
            return self.learned.info.minimize
        report = getattr(self.learned.history, "report", None)
        return report is not None and bool(report.minimize)

    @property
    def output_limits(self) -> dict[str, list[float]]:
        """What a journal notes of the limits of the output; nothing where one is infinite."""
        limits = self.learned.output_limits if isinstance(self.learned, Prior) else (-inf, inf)
        return {"outputs": list(limits)} if np.isfinite(limits).all() else {}

    @property
    def descriptors(self) -> dict[str, Any]:
        """What a journal notes of the descriptors of the task (`Prior.with_descriptors`)."""
        task = self.learned.task if isinstance(self.learned, Prior) else {}
        return {"descriptors": dict(task)} if task else {}

    @cached_property
    def digest(self) -> str:
        """Sixteen characters by which a journal knows what it was begun with.

        A prior is known by the runs it was learned from and by how: another number of threads, or
        another machine, rounds what is learned differently, and that is the same prior.
        """
        learned = self.learned
        if isinstance(learned, Prior):
            if not learned.info.source:
                return digest(to_version_1(learned))
            parts = (learned.task_gp is None, learned.calibration is None, learned.cold_weight)
            return digest([learned.space.to_dict(), asdict(learned.info), *parts])
        return digest([learned.kernel.to_json(), learned.noise_std, learned.delta, self.norm_bound])

    def begun_with(self, noted: Any) -> bool:
        """Whether a journal was begun with this; at first, journals noted every bit of a prior."""
        if noted == self.digest:
            return True
        return isinstance(self.learned, Prior) and noted == digest(to_version_1(self.learned))

    def optimizer(
        self,
        *,
        rng: np.random.Generator,
        candidates: Sequence[Mapping[str, Any]] | None,
        fixed: Mapping[str, Any],
        extrapolate: bool,
        delta: float,
        limits: RunLimits,
    ) -> Optimizer:
        """The optimizer that decides."""
        if limits:
            return self._safe_optimizer(rng, candidates, fixed, extrapolate, delta, limits)
        if isinstance(self.learned, Prior):
            return self.learned.optimizer(
                candidates, rng=rng, fixed=fixed, extrapolate=extrapolate, delta=delta
            )
        domain = self._domain(candidates, fixed, extrapolate)
        bound, learned = self.norm_bound, self.learned
        return GPUCB(
            learned.kernel if bound is None else learned.confidence_kernel(bound),
            domain,
            rng=rng,
            noise_std=learned.noise_std,
            norm_bound=bound,
            norm_of="truth" if bound is None else "kernel",
            delta=delta,
            delta_learning=learned.delta,
            maximize=not self.minimize,
        )

    def _safe_optimizer(
        self,
        rng: np.random.Generator,
        candidates: Sequence[Mapping[str, Any]] | None,
        fixed: Mapping[str, Any],
        extrapolate: bool,
        delta: float,
        limits: RunLimits,
    ) -> Optimizer:
        if not isinstance(self.learned, Prior):
            raise InputError(
                "limits need a prior with records of past outputs; for a learned kernel, "
                "mk.GPUCB(kernel, space, limits={...}) takes a mk.Limit with a kernel of its own"
            )
        if extrapolate:
            raise InputError(
                "extrapolate beside limits: past tasks vouch for nothing beyond recorded ranges"
            )
        if self.descriptors:
            raise InputError(
                "descriptors beside limits: they weigh kinds of tasks, and a search with limits "
                "decides by confidence bounds that know no kinds"
            )
        domain = self._domain(candidates, fixed, extrapolate=False)
        return safe_optimizer(self.learned, limits, domain, rng=rng, delta=delta)

    def _domain(
        self,
        candidates: Sequence[Mapping[str, Any]] | None,
        fixed: Mapping[str, Any],
        extrapolate: bool,
    ) -> Domain:
        if candidates is None:
            return SearchSpace(self.space, self.space, dict(fixed), extrapolate)
        X = self.space.encode(list(candidates), extrapolate=extrapolate)
        return CandidateTable.of(candidates, X, self.space)


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
    """

    seed: int = 0
    delta: float = 0.2
    fixed: Mapping[str, Any] = field(default_factory=dict)
    extrapolate: bool = False
    candidates: Candidates | None = None
    task: str = ""
    command: tuple[str, ...] = ()
    limits: RunLimits = field(default_factory=RunLimits)

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
            **source.output_limits,
            **source.descriptors,
            "seed": self.seed,
            "delta": self.delta,
            "fixed": dict(self.fixed),
            "outside": self.extrapolate,
            "candidates": None if self.candidates is None else self.candidates.digest,
            **self.limits.header(),
            **self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        """What tells this task from another one of the same prior, as far as it is known."""
        known = {"task": self.task, "command": list(self.command)}
        return {name: value for name, value in known.items() if value}

    def refuse_another(self, source: TuningSource, found: Mapping[str, Any], where: str) -> None:
        """A journal goes on only with the prior and the options that it began with."""
        expected, noted = self.header(source), found.get("candidates")
        expected["version"] = found.get("version")
        if source.begun_with(found.get("prior")):
            expected["prior"] = found.get("prior")
        if "outputs" not in found:  # journals did not note them at first
            expected.pop("outputs", None)
        if self.candidates is not None and self.candidates.begun_with(noted):
            expected["candidates"] = noted
        _refuse_other_limits(self.limits, RunLimits.from_header(found), where)
        for name, value in self._identity().items():
            del expected[name]
            if name in found and found[name] != value:
                raise _another_task(where, name, found[name], value)
        none: dict[str, Any] = {"descriptors": {}}
        _refuse_differences({**none, **expected}, {**none, **found}, where)

    def optimizer(self, source: TuningSource) -> Optimizer:
        """What decides: the same for the same source and options, in every process."""
        return source.optimizer(
            rng=np.random.default_rng(self.seed),
            candidates=None if self.candidates is None else self.candidates.points,
            fixed=self.fixed,
            extrapolate=self.extrapolate,
            delta=self.delta,
            limits=self.limits,
        )


def _refuse_other_limits(given: RunLimits, begun: RunLimits, where: str) -> None:
    """Whoever goes on without a limit would ask for configurations that the run must not try."""
    if given.header() != begun.header():
        was, now = (f"the limits {limits}" if limits else "no limits" for limits in (begun, given))
        raise InputError(
            f"{where} was begun with {was}, and this run has {now}, or other configurations to "
            "start from; expected the same in all of a journal"
        )


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed is {seed!r}; expected a whole number >= 0")


def _check_delta(delta: Any) -> None:
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta is {delta!r}; expected a number between 0 and 1")


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


def check_header(found: Sequence[Mapping[str, Any]], where: str) -> Mapping[str, Any]:
    """The first event, if it is the beginning of a journal."""
    first = found[0] if found else {}
    if (first.get("event"), first.get("format")) != ("started", FORMAT):
        begins = f"begins with the event {first['event']!r}" if first else "holds no event"
        raise InputError(
            f"{where} is not a journal: it {begins}; expected 'started' of {FORMAT}, with which "
            "`metakel suggest --journal`, `metakel tune` and Tuner(prior, path) begin one"
        )
    if first.get("version") not in READABLE:
        raise InputError(
            f"{where} is a journal of version {first.get('version')!r}; this release reads "
            f"{' and '.join(map(str, READABLE))}"
        )
    return first


def _refuse_differences(expected: Mapping[str, Any], found: Mapping[str, Any], where: str) -> None:
    """A journal goes on only with the prior and the settings that it began with."""
    for name, wanted in expected.items():
        # JSON keeps no tuples, so both sides are compared as they are stored.
        if json.loads(json.dumps(wanted)) != found.get(name):
            what = "another prior" if name == "prior" else f"{name} = {found.get(name)!r}"
            raise InputError(
                f"{where} was begun with {what}; go on with the same or begin another journal"
            )
