"""What was learned from past tasks, ready to decide on the next one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from metakel._arrays import TINY, Array, as_number, as_numbers, shown, single_blas_thread
from metakel._files import Format, Functions, decode, encode, write_file
from metakel.charts import text_card
from metakel.curves import CurveModel
from metakel.errors import InputError, ShapeError
from metakel.gp.processes import (
    ColdProcess,
    LearnedProcess,
    LevelAndScale,
    PastProcess,
    TaskProcess,
)
from metakel.gp.success import SuccessChance
from metakel.kernels import KernelSum
from metakel.optimize.acquisition import Acquisition
from metakel.optimize.mixture import Mixture
from metakel.optimize.model import LOADERS, BestRuns
from metakel.optimize.optimizer import Optimizer
from metakel.optimize.outcomes import OutputScale
from metakel.optimize.replays import RegretCalibration
from metakel.optimize.task_prior import TaskPrior
from metakel.priors.confidence import Calibration, ConfidenceBand, PastOutputs, prior_kernel
from metakel.priors.principal import NOISE_RATIOS, HeldOut
from metakel.priors.regret_calibration import Replays, replay_imagined
from metakel.priors.summary import Explanation, explain, summary
from metakel.search import CandidateTable, Domain, SearchSpace
from metakel.space import Categorical, Fixed, Parameter, Space
from metakel.space.configurations import storable

FORMAT = Format("metakel.Prior", version=3, noun="prior")
# Initial weight of the cold start beside what was learned; evidence moves it from there.
COLD_WEIGHT = 0.05
FEWEST_BOUNDED = 4  # tasks that vary, of which half are left out to bound norms
# A table reaches a little beyond what was recorded of others like it: 5 % of the range on [-1, 1].
SLIGHTLY = 0.1
UNREPLAYED = "the prior was learned without replays on past tasks; learn it again"


@dataclass(frozen=True, eq=False)
class PriorInfo:
    """Where a prior comes from: names of the tasks, runs, output, and what was found in them.

    ``source`` is a digest of the runs themselves. Unlike what is learned from them, it does not
    depend on how a machine rounds.
    """

    tasks: tuple[str, ...]
    runs: int
    output: str
    minimize: bool
    constant: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()  # tasks that agree with no others
    winsorized: int = 0
    lam: str = "cv"
    mean: bool = True
    notes: tuple[str, ...] = ()
    output_range: tuple[float, float] | None = None  # smallest and largest output
    log_floor: float = 0.0  # positive where logarithms are learned; smaller values count as this
    source: str = ""
    model: str = ""  # of the library, whose parameters have other spellings
    tried_first: tuple[Mapping[str, Any], ...] = ()  # configurations measured on past tasks

    def __post_init__(self) -> None:
        if not re.fullmatch("([0-9a-f]{16})?", self.source):
            raise InputError(f"source is {self.source!r}; expected 16 hexadecimal digits")
        as_number("log_floor", self.log_floor, 0)

    @property
    def origin(self) -> str:
        """Numbers of tasks and runs, in words."""
        tasks = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        return f"{tasks}, {self.runs} run{'s' * (self.runs != 1)}"

    @property
    def varying(self) -> int:
        """How many tasks were learned from."""
        return len(self.tasks) - len(self.constant) - len(self.set_aside)

    @property
    def unbounded(self) -> str:
        """Why a prior without a bound of the norm has none."""
        if self.varying >= FEWEST_BOUNDED:
            return "priors of the library are kept without it"
        return f"it takes at least {FEWEST_BOUNDED} tasks that vary. Learned from: {self.varying}"


@dataclass(frozen=True, eq=False)
class FromLibrary:
    """A process of the library beside that of one's own history."""

    task_gp: LearnedProcess
    noise_ratio: tuple[float, ...]  # weights of the noise ratios
    weight: float  # at first, among what was learned

    def __post_init__(self) -> None:
        as_number("weight", self.weight, 0, 1)
        as_numbers("noise_ratio", self.noise_ratio, (len(NOISE_RATIOS),), low=TINY)


@dataclass(frozen=True, eq=False)
class Beside:
    """What stands beside what one's own history taught, until values decide."""

    cold_weight: float = COLD_WEIGHT  # of the cold start, at first
    library: FromLibrary | None = None

    def __post_init__(self) -> None:
        as_number("cold_weight", self.cold_weight, 0, 1)


@dataclass(frozen=True, eq=False)
class Prior:
    """A prior over the next task, made by `learn_prior`.

    Parameters
    ----------
    space : Space
    model : LevelAndScale
        Level and scale of a task.
    task_gp : LearnedProcess or None
        Common shape and kernel of a standardised task; None where no past task varies.
    heldout : HeldOut
        What held-out tasks say about it.
    calibration : Calibration or None
        The norm bound; None with fewer than 4 tasks that vary.
    info : PriorInfo
    beside : Beside
        The cold start, and what the library knows where it was joined.
    certificate : RegretCalibration or None
        What replays of the optimizer on past tasks say of its regret.
    past : PastOutputs or None
        Records of all outputs, for `metakel.safe`; None where none were given.
    best_runs : BestRuns or None
        The best runs of every past task, to refer to.
    success : SuccessChance or None
        Where past runs failed; None where they did nowhere in particular.
    replays : Replays or None
        Regret of searches that were replayed on past tasks, beside that of random search.
    """

    space: Space
    model: LevelAndScale
    task_gp: LearnedProcess | None
    heldout: HeldOut
    calibration: Calibration | None
    info: PriorInfo
    beside: Beside = field(default=Beside())
    certificate: RegretCalibration | None = None
    past: PastOutputs | None = None
    best_runs: BestRuns | None = None
    success: SuccessChance | None = None
    replays: Replays | None = None

    def __post_init__(self) -> None:
        d0, info, best = self.space.d0, self.info, self.best_runs
        as_numbers("heldout.tasks", self.heldout.tasks, below=max(info.varying, 0))
        found = (self.beside.library, self.calibration)
        learned = [self.task_gp, *(part.task_gp for part in found if part is not None)]
        bases = [part.basis for part in (*learned, self.success) if part is not None]
        inputs = [len(basis.shared.lengthscales) for basis in bases]
        if best is not None:
            inputs.append(best.X.shape[1])
        # Replays may be of tasks that were left out of learning.
        if best is not None and not set(best.tasks) <= set(info.tasks):
            names = shown(best.tasks)
            raise InputError(f"best_runs.tasks are {names}; expected names of past tasks")
        if self.past is not None:
            inputs += [output.history.d0 for output in self.past.outputs.values()]
        assert self.portfolio.shape[1] == d0  # refused where it is no point
        if set(inputs) - {d0}:
            raise ShapeError(f"parts of the prior have {inputs} inputs; the space has {d0}")

    @classmethod
    def restored(cls, stored: Mapping[str, Any], functions: Functions) -> Prior:
        """From its parts, with the best runs as configurations of the space."""
        best = stored["best_runs"]
        if best is not None:
            best = replace(best, points=tuple(stored["space"].decode(best.X)))
        return cls(**{**stored, "best_runs": best})

    def renamed(self, names: Mapping[str, str]) -> Prior:
        """The same prior with other names of parameters, by their names here."""
        space, best = self.space.renamed(names), self.best_runs
        best = best and replace(best, points=tuple(space.decode(best.X)))
        first = tuple({names.get(n, n): v for n, v in x.items()} for x in self.info.tried_first)
        info = replace(self.info, tried_first=first)
        return replace(self, space=space, best_runs=best, info=info)

    @property
    def portfolio(self) -> Array:
        """(k, d0) the points to try first, where they were measured on past tasks."""
        return self.space.encode(self.info.tried_first)

    @property
    def scale(self) -> OutputScale:
        """How the model sees the output: its sign, and whether logarithms were learned."""
        return OutputScale(self.info.minimize, self.info.log_floor)

    @property
    def helps(self) -> bool:
        """Whether what was learned enters decisions; otherwise they are those of a cold start."""
        return self.task_gp is not None and self.heldout.helps

    @property
    def task_processes(self) -> tuple[tuple[PastProcess, ...], tuple[float, ...]]:
        """The learned GPs at each noise ratio, and the cold start, with their initial weights."""
        cold = ColdProcess.typical(self.space.d0)
        if not self.helps:
            return (cold,), (1.0,)
        other, cold_weight = self.beside.library, self.beside.cold_weight
        own = 1.0 if other is None else 1 - other.weight
        parts = [(self._learned, self.heldout.noise_ratio, own)]
        if other is not None:
            parts.append((other.task_gp, other.noise_ratio, other.weight))
        learned = tuple(replace(gp, noise_ratio=r) for gp, *_ in parts for r in NOISE_RATIOS)
        warm = 1 - cold_weight
        weights = tuple(warm * share * weight for _, ratios, share in parts for weight in ratios)
        if cold_weight == 0:
            return learned, weights
        return (*learned, cold), (*weights, cold_weight)

    @property
    def outliers(self) -> tuple[str, ...]:
        """Tasks that the others explain worse than white noise would."""
        pairs = zip(self.heldout_names, self.heldout.log_scores, strict=True)
        return tuple(name for name, score in pairs if score < 0)

    @property
    def heldout_names(self) -> tuple[str, ...]:
        """Names of the tasks that were held out (`HeldOut.tasks`)."""
        unused = {*self.info.constant, *self.info.set_aside}
        varying = [name for name in self.info.tasks if name not in unused]
        return tuple(varying[s] for s in self.heldout.tasks)

    @property
    def kernel(self) -> KernelSum:
        """The learned kernel as a sum of base kernels, for `GPUCB`, `posterior` and the like.

        It is about f minus `mean`, in units of the output with the sign that is maximised, and
        takes numeric points: ``prior.space.encode(...)``.
        """
        return prior_kernel(self._learned, self.model)

    def mean(self, configurations: Any) -> Array:
        """(n,) what a typical task measures there, within the range of the output."""
        X = self.space.encode(configurations)
        common = self._learned.mean(X) if self.helps else np.zeros(len(X))
        values = self.model.level + self.model.scale * common
        return np.clip(self.scale.from_model(values), *self.output_range)

    def success_chance(self, configurations: Any) -> Array:
        """(n,) chances that a run there gives a value, by the failures of past runs."""
        X = self.space.encode(configurations)
        return np.ones(len(X)) if self.success is None else 1 - self.success.failing(X)

    def optimizer(
        self,
        candidates: Any = None,
        *,
        rng: np.random.Generator | None = None,
        seed: int | None = None,
        acquisition: str | Acquisition | None = None,
        fixed: Mapping[str, Any] | None = None,
        extrapolate: bool | None = None,
        space: Space | None = None,
        new: Sequence[Parameter] = (),
        delta: float = 0.2,
        stop_at: float | str | None = None,
        curves: CurveModel | None = None,
    ) -> Optimizer:
        """Ask and tell on the next task; points are dicts of named parameters.

        Parameters
        ----------
        candidates : frame, array or sequence of dicts, optional
            A finite table to choose from, each configuration once. Without it, the whole space.
        rng, seed : Generator or int, optional
            Draws the points at which a search begins; by default always the same.
        acquisition : "ucb", "ei", "ts" or callable, optional
            Mean plus 1.5 standard deviations, more after every fourth run from the twelfth on, or
            expected improvement of the value to be seen, both averaged over models and scales; or
            Thompson sampling. By default "ucb", and "ei"
            where the history is not used (`helps`).
        fixed : dict, optional
            Parameters to hold at a value (without candidates).
        extrapolate : bool, optional
            Whether values beyond the recorded ranges are allowed. By default those of
            ``candidates`` are, with a warning where they are far beyond, and no others.
        space : Space, optional
            Ranges of this task, where they are not those of the prior (without candidates).
            Parameters of the prior that it lacks are held by ``fixed``. A choice that no past task
            had may be among those of a parameter: what was learned says of it what it says of all
            choices alike, with an effect of its own as of a cold start, and there is no
            certificate.
        new : sequence of Parameter, optional
            Parameters of this task that no past task had, to be chosen as well (without
            candidates). What was learned ignores them; their effect is modelled as that of a cold
            start, and there is no certificate.
        delta : float
            Probability with which the certificate may fail.
        stop_at : float or str, optional
            `Optimizer.done` is True once the certificate's regret is at most this, in units of the
            output, or as in "1%" of the usual spread of a task.
        curves : CurveModel, optional
            How runs went on in the past, for `Optimizer.should_stop`.
        """
        if candidates is not None and (fixed or space is not None or new):
            raise InputError(
                "fixed or new parameters or ranges, and candidates: leave the other rows out "
                "instead"
            )
        wider, allowed = self._wider(space), bool(extrapolate)
        domain: Domain
        if candidates is not None:
            domain = _candidate_table(candidates, self.space, extrapolate)
        else:
            domain = self._domain(space, dict(fixed or {}), allowed, tuple(new), wider)
        return Optimizer(
            self.task_model(delta=delta, extrapolate=allowed, new=new, choices=wider),
            domain,
            rng=rng,
            seed=seed,
            acquisition=acquisition,
            minimize=self.info.minimize,
            log_floor=self.info.log_floor,
            stop_at=stop_at,
            curves=curves,
        )

    def _domain(
        self,
        space: Space | None,
        fixed: dict[str, Any],
        extrapolate: bool,
        new: tuple[Parameter, ...],
        wider: tuple[Categorical, ...],
    ) -> SearchSpace:
        names = {p.name for p in new}
        for name in names:
            if name in self.space.names and not isinstance(self.space[name], Fixed):
                raise InputError(f"parameter {name!r} is not new: past tasks have it")
        past = tuple(p for p in self.space.parameters if p.name not in names)
        chosen = past if space is None else space.parameters
        known = self._known(wider, new)
        landmarks = None if self.task_gp is None else self.task_gp.basis.landmarks
        if landmarks is not None and known is not self.space:
            places, added = self._places(known)
            places[added] = 0.0
            landmarks = np.pad(landmarks, ((0, 0), (0, places.shape[1] - self.space.d0)))
            landmarks = landmarks @ places.T
        own = space if space is not None and space.conditions else self.space
        searched = own.among((*chosen, *new)).summing(() if space is None else space.sums)
        return SearchSpace(searched, known, fixed, extrapolate, landmarks)

    def _wider(self, space: Space | None) -> tuple[Categorical, ...]:
        """Parameters of the prior with the choices of a task that no past task had."""
        found = []
        for p in () if space is None else space.parameters:
            known = self.space[p.name] if p.name in self.space.names else p
            if isinstance(p, Categorical) and isinstance(known, Categorical):
                added = tuple(v for v in p.values if v not in known.values)
                if added and len(added) < len(p.values):
                    found.append(Categorical(p.name, (*known.values, *added)))
        return tuple(found)

    def _known(self, wider: Sequence[Categorical], new: Sequence[Parameter]) -> Space:
        """What the model of a task with these choices and more parameters knows."""
        if not wider and not new:
            return self.space
        wide, names = {p.name: p for p in wider}, {p.name for p in new}
        past = (wide.get(p.name, p) for p in self.space.parameters if p.name not in names)
        return self.space.among((*past, *new))

    def _places(self, known: Space) -> tuple[Array, list[int]]:
        """Where its columns lie among those of the past and of new parameters; new choices."""
        columns, d = dict(self.space.columns), self.space.d0
        for p in known.parameters:
            if p.name not in self.space.free:
                columns[p.name] = slice(d, d + p.width)
                d += p.width
        places, added = np.zeros((known.d0, d)), list[int]()
        for name, here in known.columns.items():
            there = columns[name]
            width, count = here.stop - here.start, there.stop - there.start
            more = range(here.start + count, here.stop)
            places[here, there] = np.eye(width, count)
            places[more, there] = 1 / max(count, 1)
            added += more
        return places, added

    def task_model(
        self,
        *,
        delta: float = 0.2,
        extrapolate: bool = False,
        new: Sequence[Parameter] = (),
        choices: Sequence[Categorical] = (),
    ) -> Mixture:
        """The model of a new task that `optimizer` decides with, in the sign to be maximised.

        Of ``choices`` some are new: these parameters have more of them than in the past.
        """
        past, weights = self.task_processes
        spaces = {n: Space(tuple(p)) for n, p in (("new", new), ("choices", choices)) if p}
        stored = {name: found.to_dict() for name, found in spaces.items()}
        known = self._known(choices, new)
        processes: tuple[TaskProcess, ...] = past
        if spaces:
            d_new, (places, added) = spaces["new"].d0 if new else 0, self._places(known)
            processes = tuple(process.widened(d_new, places, added) for process in past)
        reason = "values beyond the recorded ranges are allowed" if extrapolate else ""
        values = (f"{p.name} {v}" for p in choices for v in p.values[self.space[p.name].width :])
        if unseen := [*(p.name for p in new), *values]:
            reason = f"no past task had {', '.join(unseen)}"
        return Mixture.of(
            TaskPrior(
                processes,
                weights,
                self.model,
                known.d0,
                refits=not self.helps,
                store=partial(self._stored, delta=delta, extrapolate=extrapolate, **stored),
                regret=reason or self.certificate or UNREPLAYED,
                delta=delta,
                output_range=self.scale.range(*self.output_range),
                best_runs=None if unseen else self.best_runs,
                success=None if unseen else self.success,
                portfolio=None if unseen else self.portfolio,
                emulated=partial(replay_imagined, self),
            )
        )

    def _stored(self, **options: Any) -> dict[str, Any]:
        """The JSON form of a model with these options of `task_model`."""
        return {"prior": encode(self), **options}

    @property
    def output_range(self) -> tuple[float, float]:
        """Between which all values lie; infinite where nothing is known of them."""
        return self.info.output_range or (0.0 if self.scale.log else -inf, inf)

    def norm_bound(self, delta: float = 0.1) -> float:
        """B: a task exchangeable with these needs at most this norm, with probability 1 - delta.

        The norm is that of f minus the learned mean in ``calibration.kernel``, for the values at
        as many recorded points as past tasks have. inf where too few tasks were held out.
        """
        return inf if self.calibration is None else self.calibration.norm_bound(delta)

    def confidence(self, *, delta: float = 0.2, noise_std: float | None = None) -> ConfidenceBand:
        """Anytime confidence bands for a new task; see `ConfidenceBand` for what they assume."""
        if self.calibration is None:
            raise InputError(
                f"confidence bands need a norm bound. There is none: {self.info.unbounded}"
            )
        return ConfidenceBand(
            self.calibration,
            self.space,
            scale=self.scale,
            delta=delta,
            noise_std=noise_std,
            output_range=self.output_range,
        )

    def explain(self) -> Explanation:
        """Which parameters and pairs shape the common part, and where tasks differ."""
        return explain(self._learned, self.space, minimize=self.info.minimize)

    @property
    def _learned(self) -> LearnedProcess:
        if self.task_gp is None:
            raise InputError("no past task varies, so there is no common shape and no kernel")
        return self.task_gp

    def save(self, path: str | Path) -> None:
        """Write one versioned JSON file."""
        for parameter in self.space.parameters:
            values = parameter.to_dict()
            odd = [v for v in values.get("values", (values.get("value"),)) if not storable(v)]
            if odd:
                raise InputError(
                    f"parameter {parameter.name!r} has the value {odd[0]!r}, which a file cannot "
                    "hold; expected numbers, text, true and false, or tuples of them"
                )
        write_file(path, FORMAT.dump(encode(self)))

    @staticmethod
    @single_blas_thread
    def load(path: str | Path) -> Prior:
        """Read what `save` wrote."""
        with FORMAT.read_file(path) as content:
            return decode(Prior, content, str(path))

    def __str__(self) -> str:
        return summary(self)

    def _repr_html_(self) -> str:
        return text_card(str(self))

    def __repr__(self) -> str:
        return f"Prior({self.info.origin}, helps={self.helps})"


def _candidate_table(candidates: Any, space: Space, extrapolate: bool | None) -> CandidateTable:
    """A table to choose from: to list a candidate is to allow it.

    Where ``extrapolate`` is None, a warning names those that lie more than slightly beyond the
    recorded ranges.
    """
    rows = space.rows(candidates)
    Z = space.encode(rows, extrapolate=extrapolate is not False)
    far = np.abs(Z) > 1 + SLIGHTLY
    if extrapolate is None and far.any():
        counts = {name: int(far[:, space.columns[name]].any(axis=1).sum()) for name in space.free}
        named = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
        warnings.warn(
            f"{int(far.any(axis=1).sum())} of {len(Z)} candidates lie beyond the recorded ranges "
            f"of {named}; what the prior says there is a guess. extrapolate=True accepts them, "
            "extrapolate=False refuses them",
            stacklevel=3,
        )
    return CandidateTable.of(rows, Z, space)


@single_blas_thread
def _load_model(data: Mapping[str, Any], functions: object = None) -> Mixture:
    """Inverse of what `Prior.task_model` stores."""
    prior = decode(Prior, data["prior"], "prior")
    unseen: dict[str, Any] = {
        name: Space.from_dict(data[name]).parameters for name in ("new", "choices") if name in data
    }
    return prior.task_model(
        delta=float(data["delta"]), extrapolate=bool(data["extrapolate"]), **unseen
    )


LOADERS[Mixture.kind] = _load_model
