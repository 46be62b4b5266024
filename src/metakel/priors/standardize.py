"""Past tasks made comparable: no failures, no level and scale, and the range of the output.

Many tools record a failed run as a very bad number. Where that happened here and there, the number
says nothing about the configuration, and the run is left out. Where failures lie together, they
say where not to look: such values stay, raised to a fence like all very bad ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import TINY, Array
from metakel.data import History, Task
from metakel.errors import InputError, ShapeError
from metakel.kernels.nystrom import spread_rows
from metakel.optimize.outcomes import OutputScale
from metakel.space import Fixed, Float, Space

PERCENTAGES = ("percent", "percentage", "pct")
CLEARLY_PERCENT = 2.0  # a value above 1, but not of a share of 100
HUGE = 1e150  # of an output; its square is a number yet
SHARES = (
    "accuracy", "acc", "auc", "auroc", "auprc", "f1", "precision", "recall", "specificity",
    "sensitivity", "share", "iou", "dice",
)  # fmt: skip


Ends = tuple[float, float] | None  # low and high, where there are any


def range_of_output(history: History, given: Ends) -> tuple[Ends, str]:
    """As given; or 0 to 1, or to 100, with a note, where name and values suggest a share."""
    report = history.report
    name = "" if report is None else report.output
    sign = -1.0 if report is not None and report.minimize else 1.0
    values = sign * np.concatenate([task.y for task in history])
    found = (float(values.min()), float(values.max()))
    if given is not None:
        low, high = map(float, given)
        if not (low <= found[0] and found[1] <= high):
            raise InputError(
                f"outputs are {(low, high)} but the history holds values from {found[0]:g} to "
                f"{found[1]:g}; expected a range around all of them"
            )
        return (low, high), ""
    highest = _largest_share(name, found[1])
    if highest is None or not 0 <= found[0] <= found[1] <= highest:
        return None, ""
    return (0.0, highest), (
        f"{name} is taken to lie between 0 and {highest:g}; output_range=(low, high) or "
        "--output-range low high says otherwise"
    )


# Deciles of a loss this factor apart, within tasks or of their medians, are those of a log scale.
WIDE = 3.0
# A value this far below all of the past counts as this share of the smallest of them.
LOG_FLOOR = 0.01


def output_scale(history: History, log: bool | None, ends: Ends) -> tuple[OutputScale, str]:
    """How to learn the output: as asked for, or as a logarithm where its values suggest one.

    The values of an output with a range, such as a share, are learned as they are.
    """
    report = history.report
    plain = OutputScale(report is not None and bool(report.minimize))
    name = "the output" if report is None else report.output
    values = [plain.from_model(task.y) for task in history]
    smallest = min(float(v.min()) for v in values)
    logarithms = replace(plain, floor=LOG_FLOOR * max(smallest, 0.0))
    if log:
        if smallest <= 0:
            raise InputError(
                f"log_output=True, but {name} has the value {smallest:g}; expected positive values"
            )
        return logarithms, ""
    if log is not None or ends is not None or not plain.minimize or smallest <= 0:
        return plain, ""
    within = float(np.median([_factor(v) for v in values]))
    between = _factor(np.array([np.median(v) for v in values]))
    if max(within, between) <= WIDE or np.median([_tails(v) for v in values]) < 1:
        return plain, ""
    return logarithms, (
        f"{name} is learned on a log scale: its values differ by a factor of {within:.2g} within a "
        f"task and {between:.2g} between tasks; log_output=False or --no-log-output says otherwise"
    )


def _factor(values: Array) -> float:
    """Between the deciles; the extremes of a few runs say little."""
    low, high = np.quantile(values, [0.1, 0.9])
    return float(high / low)


def _tails(values: Array) -> float:
    """How much longer the bad tail of a loss is than its good one, as logarithms.

    Below 1 for an error that reaches 0, such as a squared distance from the optimum: as logarithms,
    its best values would be outliers.
    """
    low, middle, high = np.log(np.quantile(values, [0, 0.5, 0.95]))
    return float((high - middle) / max(middle - low, TINY))


def rescaled(history: History, scale: OutputScale) -> History:
    """The history as a model of this scale sees it; readers flip signs only."""
    if not scale.log:
        most = max((float(np.abs(task.y).max(initial=0.0)) for task in history), default=0.0)
        if most > HUGE:
            raise InputError(
                f"values of the output up to {most:g}; expected at most {HUGE:g}, as a float "
                "cannot hold the squares of larger ones; divide all by a power of ten"
            )
        return history
    plain = OutputScale(scale.minimize)

    def seen(task: Task) -> Task:
        values, noise = plain.from_model(task.y), task.noise_std
        noise = None if noise is None else scale.noise(values, noise)
        return replace(task, y=scale.to_model(values), noise_std=noise)

    return replace(history, tasks=tuple(seen(task) for task in history))


def _largest_share(name: str, found: float) -> float | None:
    """1 or 100, if the name is that of a share; ``found`` is the largest value."""
    words = re.split(r"[^a-z0-9%]+", name.lower())
    if "%" in name or any(word in PERCENTAGES for word in words):
        return 100.0
    if any(word in SHARES for word in words) and not 1 < found < CLEARLY_PERCENT:
        return 1.0 if found <= 1 else 100.0
    return None


# Tukey's fence: values this many quartile ranges below the lower quartile are outliers. How bad a
# failure was says nothing about where the best values are, but would dominate the scale.
FENCE = 1.5
# A repeated minimum this many quartile ranges below the lower quartile of the other values is the
# mark of a failed run; Tukey calls such values far out.
FAR_OUT = 3.0
# Failures lie together where their means differ from those of all runs by more than chance, by this
# many standard deviations of what chance does.
BEYOND_CHANCE = 3.0
# A spread this far below the size of the values is rounding, not signal.
ROUNDING = 1e-12
# Variances of noise, over the usual one, are taken to lie within this factor.
LARGEST_RATIO = 100.0


def with_space(history: History, space: Space | None) -> tuple[History, Space]:
    """The history in the numeric domain of a space: its own, the one given, or x0, x1, ..."""
    if history.space is not None:
        if space not in (None, history.space):
            raise InputError(
                f"the history has a space of its own ({', '.join(history.space.names)}), and its "
                "points are numbers of that one; give another where it is read: "
                "History.from_frame(..., space=...)"
            )
        return history, history.space
    pooled = np.concatenate([task.X for task in history])
    if space is None:
        ends = zip(pooled.min(axis=0).tolist(), pooled.max(axis=0).tolist(), strict=True)
        parameters = (
            Float(f"x{i}", low, high) if low < high else Fixed(f"x{i}", low)
            for i, (low, high) in enumerate(ends)
        )
        space = Space(tuple(parameters))
    if len(space.names) != history.d0:
        raise ShapeError(
            f"the history has {history.d0} inputs but the space {len(space.names)} parameters"
        )
    tasks = tuple(
        replace(
            task,
            X=space.encode(np.asarray(task.X)),
            failed=space.encode(np.asarray(task.failed), extrapolate=True),
        )
        for task in history
    )
    return History(tasks, space, history.report), space


@dataclass(frozen=True, eq=False)
class StandardizedTasks:
    """Tasks that vary, with mean 0 and variance 1 each."""

    X: Sequence[Array]  # m arrays (n_s, d0)
    z: Sequence[Array]  # m arrays (n_s,)
    means: Array  # (m,) levels that were taken out
    spreads: Array  # (m,) scales that were taken out
    names: tuple[str, ...]  # m of them
    constant: tuple[str, ...]  # tasks left out because all their values are equal
    winsorized: int  # how many values were raised to the fence
    # m arrays (n_s,), variance of the noise of each value over the usual one; none if not recorded.
    noise: tuple[Array, ...] = ()

    @property
    def m(self) -> int:
        """How many tasks there are."""
        return len(self.z)

    def of(self, chosen: NDArray[np.intp]) -> StandardizedTasks:
        """These tasks only."""
        listed = {
            name: tuple(kept[s] for s in chosen)
            for name in ("X", "z", "names", "noise")
            if (kept := getattr(self, name))
        }
        means, spreads = self.means[chosen], self.spreads[chosen]
        return replace(self, means=means, spreads=spreads, constant=(), winsorized=0, **listed)


def standardize(history: History) -> StandardizedTasks:
    """Take level and scale out of every past task."""
    raised = [winsorize(task.y) for task in history]
    pairs = list(zip(history, raised, strict=True))
    kept = [(t, y) for t, y in pairs if float(y.std()) > ROUNDING * float(np.abs(y).max())]
    means, spreads = np.array([(y.mean(), y.std()) for _, y in kept]).reshape(-1, 2).T
    names = tuple(task.name for task, _ in kept)
    return StandardizedTasks(
        [task.X for task, _ in kept],
        [(y - mean) / spread for (_, y), mean, spread in zip(kept, means, spreads, strict=True)],
        means,
        spreads,
        names,
        tuple(task.name for task in history if task.name not in names),
        sum(int((y > task.y).sum()) for task, y in kept),
        noise_ratios([task for task, _ in kept]),
    )


def noise_ratios(tasks: Sequence[Task]) -> tuple[Array, ...]:
    """Recorded variances of the noise over their median; 1 where none is recorded.

    Only ratios count: how much noise there is follows from the values. Beyond a factor of 100 a
    run would decide alone, or not at all.
    """
    given = [task.noise_std for task in tasks if task.noise_std is not None]
    known = np.concatenate(given) if given else np.empty(0)
    known = known[known > 0]
    if not len(known):
        return ()
    usual = float(np.median(known))
    found = []
    for task in tasks:
        levels = np.full(task.n, usual) if task.noise_std is None else task.noise_std
        ratios = np.where(np.isnan(levels), 1.0, (levels / usual) ** 2)
        found.append(np.clip(ratios, 1 / LARGEST_RATIO, LARGEST_RATIO))
    return tuple(found)


def without_failures(history: History) -> tuple[History, str]:
    """The history without runs that failed here and there, and a note on them; "" for none.

    The mark of a failure is the minimum of a task, far below its other values, that occurs again:
    in the task, or as the far minimum of another.
    """
    far = [_far_minimum(task.y) for task in history]
    lowest = [float(task.y.min()) for task in history]
    marks = [value for value, failed in zip(lowest, far, strict=True) if failed.any()]
    failures = [
        failed & (failed.sum() > 1 or marks.count(value) > 1)
        for value, failed in zip(lowest, far, strict=True)
    ]
    pairs = [(task, f) for task, f in zip(history, failures, strict=True) if f.any()]
    if not pairs or lie_together([(task.X, failed) for task, failed in pairs]):
        return history, ""

    def without(task: Task, rows: NDArray[np.bool_]) -> Task:
        noise = None if task.noise_std is None else task.noise_std[~rows]
        return replace(task, X=task.X[~rows], y=task.y[~rows], noise_std=noise)

    kept = [
        without(task, failed) if failed.any() else task
        for task, failed in zip(history, failures, strict=True)
    ]
    count = sum(int(failed.sum()) for _, failed in pairs)
    note = (
        f"{count} runs of {len(pairs)} tasks repeat one value far below all others: taken as "
        "failed, and left out"
    )
    return replace(history, tasks=tuple(kept)), note


def _far_minimum(y: Array) -> NDArray[np.bool_]:
    """(n,) which values are the minimum, if that is far out and the exception."""
    lowest = y == y.min()
    rest = y[~lowest]
    if len(rest) <= len(y) / 2:
        return np.zeros(len(y), dtype=bool)
    low, high = np.quantile(rest, [0.25, 0.75])
    width = high - low or np.ptp(rest)  # where half of the values are equal, the range is left
    far = width > 0 and y.min() < low - FAR_OUT * width
    return np.asarray(lowest & bool(far))


def lie_together(tasks: Sequence[tuple[Array, NDArray[np.bool_]]]) -> bool:
    """Whether failures are found at other inputs than runs in general.

    By the mean of every input and of its square, which see edges and centres. Their squared
    differences are 1 each on average if failures have nothing to do with the inputs.
    """
    squares = []
    for X, failed in tasks:
        F = np.column_stack([X, (X - X.mean(axis=0)) ** 2])
        F = F[:, F.std(axis=0) > 0]
        n, k = len(F), int(failed.sum())
        variance = F.var(axis=0) * (n - k) / (k * (n - 1))  # of a mean without replacement
        squares.append((F[failed].mean(axis=0) - F.mean(axis=0)) ** 2 / variance)
    found = np.concatenate(squares)
    return bool(found.sum() - len(found) > BEYOND_CHANCE * np.sqrt(2 * len(found)))


def winsorize(y: Array) -> Array:
    """Raise values below Tukey's lower fence to it; not where half of the values are equal."""
    low, high = np.quantile(y, [0.25, 0.75])
    return np.maximum(y, low - FENCE * (high - low)) if high > low else y


# Fewer failures say nothing, and more runs than this say no more.
FEWEST, MOST = 5, 2000


def failed_runs(history: History) -> tuple[tuple[Array, Array] | None, str]:
    """Points (n, d0) of runs and which of them failed (n,), and a note; None without failures.

    None as well where failures are found at the same inputs as other runs: a machine that went down
    says nothing about the configuration.
    """
    tasks = [task for task in history if task.failed is not None and len(task.failed)]
    count = sum(len(np.asarray(task.failed)) for task in tasks)
    if count < FEWEST:
        return None, ""
    pairs = []
    for task in tasks:
        X = np.concatenate([task.X, np.asarray(task.failed)])
        pairs.append((X, np.arange(len(X)) >= task.n))
    if not lie_together(pairs):
        return None, f"{count} failed runs are spread over all inputs: nothing is learned from them"
    others = [task for task in history if task not in tasks]
    X = np.concatenate([*(X for X, _ in pairs), *(task.X for task in others)])
    failed = np.concatenate([*(f for _, f in pairs), *(np.zeros(t.n, dtype=bool) for t in others)])
    rows = spread_rows(np.arange(len(X)), MOST)
    note = (
        f"{count} failed runs of {len(tasks)} tasks lie together: the chance that a run fails "
        "counts in every choice"
    )
    return (X[rows], failed[rows].astype(np.float64)), note
