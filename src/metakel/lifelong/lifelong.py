"""The loop over tasks: play one, learn from it, play the next one better (Statement 9)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np

from metakel._arrays import check_generator, is_number, positive
from metakel._files import Format, write_file
from metakel.confidence import ConfidenceSequence
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.kernels import KernelDictionary, KernelSum
from metakel.learn import LearnedKernel, learn_kernel
from metakel.optimize import GPUCB, CertifiedModel, Optimizer, Replay
from metakel.search import Domain, SearchSpace, domain_from_dict
from metakel.space import Space


@dataclass(frozen=True)
class FinishedTask:
    """A task that was played.

    Parameters
    ----------
    name : str
    values : int
        How many values were observed.
    kernels : tuple of str
        Base kernels that it was played with.
    learned : bool
        Whether these were the selected ones; False for all kernels, as in the warm-up.
    best : float or None
        Value of its best point; None with contexts, where there is no one best point.
    regret : float
        How far the best point can be from the optimum; with contexts, the mean over the runs of
        what a run can have lost.
    alarm : int or None
        After how many values the data contradicted the kernels.
    selected : tuple of str or None
        Base kernels that were selected after this task; None where nothing was learned then.
    """

    name: str
    values: int
    kernels: tuple[str, ...]
    learned: bool
    best: float | None
    regret: float
    alarm: int | None
    selected: tuple[str, ...] | None = None

    @classmethod
    def of(cls, name: str, optimizer: Optimizer, *, kernels: Sequence[str], learned: bool) -> Self:
        """The summary of an optimizer's run."""
        contextual = optimizer.contexts is not None
        certified = not optimizer.no_certificate
        if contextual:
            regret = optimizer.regret_certificate / max(optimizer.t, 1)
        else:
            regret = optimizer.certificate.regret if certified else inf
        return cls(
            name=name,
            values=optimizer.t,
            kernels=tuple(kernels),
            learned=learned,
            best=None if contextual else optimizer.best.value,
            regret=float(regret),
            alarm=None if optimizer.alarm is None else optimizer.alarm.time,
        )

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form."""
        return {**asdict(self), "regret": self.regret if isfinite(self.regret) else None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FinishedTask:
        """Inverse of `to_dict`."""
        kept = dict(data)
        kept["kernels"] = tuple(kept["kernels"])
        kept["regret"] = inf if kept["regret"] is None else float(kept["regret"])
        kept["selected"] = None if kept["selected"] is None else tuple(kept["selected"])
        return cls(**kept)


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Which kernels were added and removed, as in "+P3 -P7"."""
    added = [f"+{name}" for name in after if name not in before]
    removed = [f"-{name}" for name in before if name not in after]
    return " ".join([*added, *removed])


def table(tasks: Sequence[FinishedTask]) -> str:
    """Text for people: one line for each task."""
    width = max([4, *(len(task.name) for task in tasks)])
    lines = [f"{'task':{width}}  values  played with   best      within    alarm  selection"]
    selected: tuple[str, ...] = ()
    for task in tasks:
        played = f"{len(task.kernels)} learned" if task.learned else f"all {len(task.kernels)}"
        best = "-" if task.best is None else f"{task.best:.4g}"
        alarm = "-" if task.alarm is None else f"t={task.alarm}"
        change = ""
        if task.selected is not None:
            change, selected = changes(selected, task.selected), task.selected
        lines.append(
            f"{task.name:{width}}  {task.values:6d}  {played:12}  {best:8}  {task.regret:<8.3g}  "
            f"{alarm:5}  {change}".rstrip()
        )
    return "\n".join(lines)


FORMAT = Format("metakel.Lifelong", version=1, noun="lifelong learner")
LOGGER = logging.getLogger("metakel")


class Lifelong:
    """Tasks in a row, each decided with the kernels that the finished ones have taught.

    The first tasks are played with all base kernels, which is also what explores best (Statement
    11). From then on a task is played with the kernels that were selected from all finished tasks.
    A task keeps its kernel; what others teach meanwhile counts for the next.

    With probability 1 - delta/2, noise misleads none of the relearnings, however points and
    stopping times were chosen (``lam="lifelong"``). Each task then has intervals that fail with
    probability delta/2 at most. That no kernel is missing from the selection is an assumption, as
    in `learn_kernel`. The number of tasks with intervals that fail is thus about delta/2 of them,
    not zero.

    Parameters
    ----------
    base : KernelDictionary
        Base kernels to select from.
    domain : Domain or Space
        Where every task is searched.
    noise_std : float
        Bound of the noise level of an observation, in every task.
    norm_bound : float, optional
        B of `ConfidenceSequence`, in every task.
    delta : float
        Probability of error: half for learning, once, and half for each task.
    warm_up : int
        How many tasks are played with all kernels before a selection is trusted.
    rng : Generator
        Draws a seed, once.
    history : History, optional
        Tasks that are known already. They count for the warm-up.
    maximize : bool
        False to minimise.
    context : Domain or Space, optional
        Where contexts come from; see `GPUCB`.
    """

    def __init__(
        self,
        base: KernelDictionary,
        domain: Domain | Space,
        *,
        noise_std: float,
        rng: np.random.Generator,
        norm_bound: float | None = None,
        delta: float = 0.1,
        warm_up: int = 5,
        history: History | None = None,
        maximize: bool = True,
        context: Domain | Space | None = None,
    ) -> None:
        check_generator(rng)
        if isinstance(warm_up, bool) or not isinstance(warm_up, int) or warm_up < 0:
            raise InputError(f"warm_up is {warm_up!r}; expected an integer >= 0")
        if not (is_number(delta) and 0 < delta < 1):
            raise InputError(f"delta is {delta!r}; expected a number between 0 and 1")
        self.base, self.warm_up, self.maximize = base, warm_up, maximize
        self.domain, self.context = (
            _as_domain(domain),
            None if context is None else _as_domain(context),
        )
        self.noise_std, self.delta = positive("noise_std", noise_std), float(delta)
        self.norm_bound = None if norm_bound is None else positive("norm_bound", norm_bound)
        self.learned: LearnedKernel | None = None
        self._seed = int(rng.integers(2**63))
        self._opened = self._forgotten = 0
        if history is not None:
            history.require_complete("Lifelong")
        self._given = () if history is None else history.tasks
        self._played: tuple[Task, ...] = ()
        self._finished: tuple[FinishedTask, ...] = ()
        self._open: dict[str, Optimizer] = {}
        if history is not None:
            self._learn()

    # What it knows

    @property
    def history(self) -> History | None:
        """All tasks that count: those given, and those finished; None before there is one."""
        tasks = (*self._given, *self._played)
        return History(tasks) if tasks else None

    @property
    def m(self) -> int:
        """How many tasks count."""
        return len(self._given) + len(self._played)

    @property
    def tasks(self) -> tuple[FinishedTask, ...]:
        """What became of the finished tasks, in the order in which they were finished."""
        return self._finished

    @property
    def open(self) -> Mapping[str, Optimizer]:
        """Tasks that were begun and not finished, by name."""
        return dict(self._open)

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the base kernels that the last learning has selected."""
        return () if self.learned is None else self.learned.names

    @property
    def warming_up(self) -> bool:
        """Whether the next task is played with all kernels."""
        return self.m < self.warm_up or not self.selected

    def __repr__(self) -> str:
        known = f"{len(self.selected)} of {self.base.p} base kernels selected"
        plan = "all kernels" if self.warming_up else "the selected kernels"
        return (
            f"Lifelong({self.m} tasks known, {len(self._open)} open, {known}, "
            f"the next task is played with {plan})"
        )

    def report(self) -> str:
        """Text for people: what each task was played with, how it ended, and what it taught."""
        head = repr(self)[len("Lifelong(") : -1]
        return f"{head}\n\n{table(self._finished)}" if self._finished else head

    # Tasks

    def task(self, name: str) -> Optimizer:
        """An optimizer for a new task; one of several that may be open at once."""
        if not isinstance(name, str) or not name:
            raise InputError(f"the name of a task is {name!r}; expected text")
        if name in self._open:
            raise InputError(f"the task {name!r} is open; use open[{name!r}], or finish it first")
        if name in {*(task.name for task in self._given), *(done.name for done in self._finished)}:
            raise InputError(f"there was a task {name!r}; expected a new name")
        everything = KernelSum.uniform(self.base, weight=1.0)
        kernel = everything if self.warming_up or self.learned is None else self.learned.kernel
        stream = np.random.SeedSequence(self._seed, spawn_key=(self._opened,))
        optimizer = GPUCB(
            kernel,
            self.domain,
            rng=np.random.default_rng(stream),
            noise_std=self.noise_std,
            norm_bound=self.norm_bound,
            delta=self.delta,
            delta_learning=0.0 if kernel is everything else self.delta / 2,
            full=everything,
            maximize=self.maximize,
            context=self.context,
        )
        self._opened += 1
        self._open[name] = optimizer
        return optimizer

    def finish(self, task: str | Optimizer, *, learn: bool = True) -> FinishedTask:
        """Close a task; its values join the history, and the kernels are selected again.

        Parameters
        ----------
        task : str or Optimizer
            The name of an open task, or its optimizer.
        learn : bool
            False to keep the values and learn from them at a later `finish`.
        """
        name, optimizer = self._find(task)
        outcomes = optimizer.record.observed
        if not outcomes:
            raise InputError(f"the task {name!r} has no values; use drop({name!r}) to give it up")
        noise = max(trial.noise_std or 0.0 for trial in outcomes)
        if noise > self.noise_std:
            raise InputError(
                f"the task {name!r} has values with a noise level of {noise:g}; "
                f"expected at most noise_std = {self.noise_std:g}"
            )
        model = optimizer.model
        assert isinstance(model, CertifiedModel)
        names = [self.base.names[j] for j in model.kernel.active]
        trusted = len(names) < self.base.p
        done = FinishedTask.of(name, optimizer, kernels=names, learned=trusted)
        y = optimizer.y if self.maximize else -optimizer.y
        before = (self.learned, self._played)
        self._played = (*self._played, Task(optimizer.X, y, name=name))
        if learn:
            try:
                self._learn()
            except BaseException:
                self.learned, self._played = before
                raise
            done = replace(done, selected=self.selected)
        self._finished = (*self._finished, done)
        del self._open[name]
        return done

    def drop(self, task: str | Optimizer) -> None:
        """Give up an open task; nothing is learned from it."""
        del self._open[self._find(task)[0]]

    def forget(self, *, before: str) -> None:
        """Learn from the task named ``before`` and later ones only, after a change of the plant.

        Those forgotten stay in the report. The selection is made again, at a smaller share of
        delta: the time of forgetting may have been chosen by looking at the data.
        """
        names = [task.name for task in (*self._given, *self._played)]
        if before not in names:
            known = ", ".join(map(repr, names[-3:])) or "there are none"
            raise InputError(f"forget: there is no task {before!r}; the last ones: {known}")
        cut = names.index(before)
        self._given, self._played = (
            self._given[cut:],
            self._played[max(cut - len(self._given), 0) :],
        )
        self._forgotten += cut
        self.learned = None
        self._learn()

    def _find(self, task: str | Optimizer) -> tuple[str, Optimizer]:
        for name, optimizer in self._open.items():
            if task is optimizer or (isinstance(task, str) and task == name):
                return name, optimizer
        known = ", ".join(map(repr, self._open)) or "there are none"
        what = repr(task) if isinstance(task, str) else "of this optimizer"
        raise InputError(f"there is no open task {what}; open tasks: {known}")

    def _learn(self) -> None:
        """Select again, from all tasks that count."""
        before, history = self.selected, self.history
        assert history is not None
        if self.learned is None or not isinstance(self.learned.history, History):
            # One share of delta for every number of tasks that could have been forgotten.
            shares = (self._forgotten + 1) * (self._forgotten + 2)
            self.learned = learn_kernel(
                history,
                self.base,
                noise_std=self.noise_std,
                lam="lifelong",
                delta=self.delta / 2 / shares,
            )
        else:
            self.learned = self.learned.update(history[self.learned.history.m :])
        change = changes(before, self.selected)
        if "-" in {part[0] for part in change.split()}:
            LOGGER.info("selection after %d tasks: %s", self.m, change)

    # How it is kept

    def to_dict(self) -> dict[str, Any]:
        """Exact JSON form of all tasks, finished and open."""
        return FORMAT.dump(
            {
                "base": KernelSum.uniform(self.base).to_json(),
                "domain": self.domain.to_dict(),
                "context": None if self.context is None else self.context.to_dict(),
                "noise_std": self.noise_std,
                "norm_bound": self.norm_bound,
                "delta": self.delta,
                "warm_up": self.warm_up,
                "maximize": self.maximize,
                "seed": self._seed,
                "opened": self._opened,
                "forgotten": self._forgotten,
                "learned_from": 0 if self.learned is None else self.learned.history.m,
                "given": [_stored(task) for task in self._given],
                "played": [_stored(task) for task in self._played],
                "finished": [task.to_dict() for task in self._finished],
                "open": {name: optimizer.to_dict() for name, optimizer in self._open.items()},
            }
        )

    def save(self, path: str | Path) -> None:
        """Write everything to a file; on an error the old file is still there."""
        write_file(path, self.to_dict())

    @classmethod
    def load(
        cls, path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Lifelong:
        """Read what `save` wrote; the selection is made again from the stored tasks."""
        with FORMAT.read_file(path) as content:
            return cls._from_content(content, functions)

    @classmethod
    def _from_content(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
    ) -> Lifelong:
        context = data["context"]
        life = cls(
            KernelSum.from_json(data["base"], functions).base,
            domain_from_dict(data["domain"]),
            noise_std=data["noise_std"],
            norm_bound=data["norm_bound"],
            delta=data["delta"],
            warm_up=data["warm_up"],
            maximize=data["maximize"],
            context=None if context is None else domain_from_dict(context),
            rng=np.random.default_rng(0),
        )
        life._seed, life._opened = int(data["seed"]), int(data["opened"])
        life._forgotten = int(data["forgotten"])
        given, played = (
            tuple(Task(np.array(t["X"]), np.array(t["y"]), t["name"]) for t in data[kind])
            for kind in ("given", "played")
        )
        known = int(data["learned_from"])
        life._given, life._played = given, played[: max(known - len(given), 0)]
        if known:
            life._learn()
        life._played = played
        life._finished = tuple(map(FinishedTask.from_dict, data["finished"]))
        life._open = {
            name: Optimizer.from_dict(stored, functions) for name, stored in data["open"].items()
        }
        return life


def replay_alarms(
    kernel: KernelSum,
    tasks: Iterable[Task],
    *,
    noise_std: float,
    norm_bound: float | None,
    **options: Any,
) -> Replay:
    """On how many tasks the alarm of a kernel would have been raised (Statement 16).

    Each record is told, value by value, to a `ConfidenceSequence` of the kernel, with its
    ``options``. If the tasks are exchangeable with the next one, were all played by one policy, and
    did not teach the kernel, then the alarm is raised on the next one with probability at most
    ``expected`` on average over histories: 1 / (g + 1) after g silent tasks. In the first tasks of
    `Lifelong` the policy is that of the warm-up. Silence says that no alarm is to be expected, not
    that the kernel is right: GP-UCB hardly looks where a kernel is missing.

    Parameters
    ----------
    kernel : KernelSum
    tasks : iterable of Task
        With their values in the order in which they were observed.
    noise_std, norm_bound : float
        Of the sequence.
    """
    raised = []
    for task in tasks:
        band = ConfidenceSequence(kernel, noise_std=noise_std, norm_bound=norm_bound, **options)
        for x, y in zip(task.X, task.y, strict=True):
            band.tell(x[None], [y])
            if band.alarm is not None:
                break
        raised.append(band.alarm is not None)
    if not raised:
        raise InputError("replay_alarms: there is no task")
    return Replay(np.array(raised), ())


def _stored(task: Task) -> dict[str, Any]:
    return {"name": task.name, "X": task.X.tolist(), "y": task.y.tolist()}


def _as_domain(domain: Domain | Space) -> Domain:
    return SearchSpace(domain, domain) if isinstance(domain, Space) else domain
