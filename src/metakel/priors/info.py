"""Where a prior comes from, and what stands beside what its history taught."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metakel._arrays import TINY, as_number, as_numbers
from metakel.errors import InputError
from metakel.gp.processes import LearnedProcess
from metakel.priors.heldout import NOISE_RATIOS

# Initial weight of the cold start beside what was learned; evidence moves it from there.
COLD_WEIGHT = 0.05
FEWEST_BOUNDED = 4  # tasks that vary, of which half are left out to bound norms


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
    """A process of the library beside that of one's own history.

    Parameters
    ----------
    task_gp : LearnedProcess
    noise_ratio : tuple of float
        Weights of the noise ratios.
    weight : float
        Initial weight among what was learned.
    """

    task_gp: LearnedProcess
    noise_ratio: tuple[float, ...]
    weight: float

    def __post_init__(self) -> None:
        as_number("weight", self.weight, 0, 1)
        as_numbers("noise_ratio", self.noise_ratio, (len(NOISE_RATIOS),), low=TINY)


@dataclass(frozen=True, eq=False)
class Beside:
    """What stands beside what one's own history taught, until values decide.

    Parameters
    ----------
    cold_weight : float
        Initial weight of the cold start.
    library : FromLibrary or None
    """

    cold_weight: float = COLD_WEIGHT
    library: FromLibrary | None = None

    def __post_init__(self) -> None:
        as_number("cold_weight", self.cold_weight, 0, 1)
