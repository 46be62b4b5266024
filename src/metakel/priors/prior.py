"""What was learned from past tasks, ready to decide on the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from metakel._arrays import check_generator
from metakel.errors import InputError
from metakel.gp.task_gp import DefaultGP, Shape, TaskGP
from metakel.gp.task_scale import TaskModel
from metakel.kernels import KernelSum
from metakel.optimize.prior_optimizer import SpaceOptimizer, TableOptimizer
from metakel.priors.band import ConfidenceBand
from metakel.priors.calibration import Calibration, prior_kernel
from metakel.priors.configurations import encode_candidates, encode_configurations
from metakel.priors.explain import Explanation, explain
from metakel.priors.heldout import NOISE_RATIOS, HeldOut
from metakel.priors.summary import summary
from metakel.search.named import SearchSpace
from metakel.space import Space

# Start weight of the cold start beside the learned belief; evidence moves it from there.
COLD_WEIGHT = 0.05


@dataclass(frozen=True, eq=False)
class PriorInfo:
    """Where a prior comes from: names of the tasks, runs, output, and what was noticed."""

    tasks: tuple[str, ...]
    runs: int
    output: str
    minimize: bool
    constant: tuple[str, ...] = ()
    winsorized: int = 0
    lam: str = "cv"
    mean: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Prior:
    """A prior over the next task, made by `learn_prior`.

    Parameters
    ----------
    space : Space
    model : TaskModel
        Level and scale of a task.
    shape : TaskGP or None
        Common shape and kernel; None where no past task varies.
    heldout : HeldOut
        What held-out tasks say about it.
    calibration : Calibration or None
        The norm bound; None with fewer than 4 tasks that vary.
    info : PriorInfo
    cold_weight : float
        Start weight of a cold start beside the learned belief.
    """

    space: Space
    model: TaskModel
    shape: TaskGP | None
    heldout: HeldOut
    calibration: Calibration | None
    info: PriorInfo
    cold_weight: float = field(default=COLD_WEIGHT)

    @property
    def helps(self) -> bool:
        """Whether the learned shape enters decisions; otherwise they are those of a cold start."""
        return self.shape is not None and self.heldout.helps

    @property
    def beliefs(self) -> tuple[tuple[Shape, ...], tuple[float, ...]]:
        """The learned belief by noisiness of the task, and its guard, with their start weights."""
        cold: Shape = DefaultGP.typical(self.space.d0)
        if self.shape is None or not self.heldout.helps:
            return (cold,), (1.0,)
        learned = tuple(self.shape.with_noisiness(share) for share in NOISE_RATIOS)
        weights = tuple((1 - self.cold_weight) * weight for weight in self.heldout.noise_ratio)
        if self.cold_weight == 0:
            return learned, weights
        return (*learned, cold), (*weights, self.cold_weight)

    @property
    def outliers(self) -> tuple[str, ...]:
        """Tasks that the others explain worse than white noise would."""
        varying = [name for name in self.info.tasks if name not in self.info.constant]
        return tuple(varying[s] for s, g in self._judged if g < 0)

    @property
    def _judged(self) -> list[tuple[int, float]]:
        return list(zip(self.heldout.tasks.tolist(), self.heldout.gains.tolist(), strict=True))

    @property
    def kernel(self) -> KernelSum:
        """The learned kernel as a sum of base kernels, for `GPUCB`, `posterior` and the like.

        It is about f minus `mean`, in units of the output with the sign that is maximised, and
        takes numeric points: ``prior.space.encode(...)``.
        """
        return prior_kernel(self._shape, self.model)

    def mean(self, configurations: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(n,) what a typical task measures there."""
        X = encode_configurations(configurations, self.space)
        shape = self.shape.mean(X) if self.shape is not None and self.helps else np.zeros(len(X))
        values = self.model.level + self.model.scale * shape
        return -values if self.info.minimize else values

    def optimizer(
        self,
        candidates: Any = None,
        *,
        rng: np.random.Generator | None = None,
        acquisition: Literal["ucb", "ei"] = "ucb",
        fixed: dict[str, Any] | None = None,
        extrapolate: bool | None = None,
        within: Space | None = None,
    ) -> SpaceOptimizer | TableOptimizer:
        """Ask and tell on the next task.

        Parameters
        ----------
        candidates : frame, array or sequence of dicts, optional
            A finite table to choose from; `ask` then gives row numbers. Without it, `ask` gives
            dicts of named parameters from the whole space.
        rng : Generator
            Needed without candidates.
        acquisition : "ucb" or "ei"
            Mean plus 1.5 standard deviations, or expected improvement of the value to be seen;
            both averaged over beliefs and scales.
        fixed : dict, optional
            Parameters to hold at a value (without candidates).
        extrapolate : bool, optional
            Whether values beyond the recorded ranges are allowed. Unless told, those of
            ``candidates`` are, with a warning where they are far beyond, and no others.
        within : Space, optional
            Ranges of this task, where they are not those of the prior (without candidates).
            Parameters of the prior that it lacks are held by ``fixed``.
        """
        if acquisition not in ("ei", "ucb"):
            raise InputError(f"acquisition is {acquisition!r}; expected 'ei' or 'ucb'")
        if candidates is not None:
            if fixed or within is not None:
                raise InputError(
                    "fixed parameters or ranges, and candidates: leave the other rows out instead"
                )
            Z = encode_candidates(candidates, self.space, extrapolate=extrapolate)
            return TableOptimizer(self, Z, acquisition, extrapolate=extrapolate is not False)
        if rng is None:
            raise InputError("an optimizer on the whole space draws its pool: pass rng=")
        check_generator(rng)
        ground = SearchSpace(within or self.space, self.space, fixed or {}, bool(extrapolate))
        return SpaceOptimizer(self, rng, acquisition, ground=ground)

    def norm_bound(self, delta: float = 0.1) -> float:
        """B: a task exchangeable with these needs at most this norm, with probability 1 - delta.

        The norm is that of f minus the learned mean in ``calibration.kernel``, for the values at
        as many recorded points as past tasks have. inf where too few tasks were held out.
        """
        return float("inf") if self.calibration is None else self.calibration.norm_bound(delta)

    def confidence(self, *, delta: float = 0.2, noise_std: float | None = None) -> ConfidenceBand:
        """Anytime confidence bands for a new task; see `ConfidenceBand` for what they assume."""
        if self.calibration is None:
            raise InputError("confidence bands need a norm bound, so at least 4 tasks that vary")
        return ConfidenceBand(
            self.calibration,
            self.space,
            minimize=self.info.minimize,
            delta=delta,
            noise_std=noise_std,
        )

    def explain(self) -> Explanation:
        """Which parameters and pairs shape the common part, and where tasks differ."""
        return explain(self._shape, self.space, minimize=self.info.minimize)

    @property
    def _shape(self) -> TaskGP:
        if self.shape is None:
            raise InputError("no past task varies, so there is no shape to speak of")
        return self.shape

    def save(self, path: str | Path) -> None:
        """Write one versioned JSON file."""
        from metakel.priors.storage import save_prior

        save_prior(self, path)

    @staticmethod
    def load(path: str | Path) -> Prior:
        """Read what `save` wrote."""
        from metakel.priors.storage import load_prior

        return load_prior(path)

    def __str__(self) -> str:
        return summary(self)

    def __repr__(self) -> str:
        return f"Prior({len(self.info.tasks)} tasks, {self.info.runs} runs, used={self.helps})"
