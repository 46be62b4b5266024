"""Tasks left out: how well the others predict and tune them, and the page's part on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from metakel._arrays import Array
from metakel.charts import COLD, LEARNED, RANDOM, REFERENCE, Axis, SvgChart, number
from metakel.data import History, Task
from metakel.errors import InputError
from metakel.optimize.optimizer import give, rehearse
from metakel.priors import Prior, learn_prior
from metakel.priors.principal import NEEDED_LOG_SCORE
from metakel.priors.replays import random_regret
from metakel.report.html import figure, figures, paragraph, section

FOLDS = 3
TASKS = 24  # at most so many are played through
ROWS = 300  # of a task
SEEN = 5  # values observed before the rest is predicted
EVALUATIONS = 20
WITH_HISTORY = "with the history"
SHOWN_NAMES = 8
WORST_SHOWN = -3.0  # some cold starts are far off
FLOOR = 1e-3  # of a logarithmic axis
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95])


@dataclass(frozen=True, eq=False)
class HeldOutTask:
    """One held-out task under one model.

    Parameters
    ----------
    surprises : (r,) array
        (value - mean) / sd of rows that were not observed.
    sharpness : float
        Mean predicted standard deviation in units of the task's.
    regret : (T,) array
        Best possible minus best found, in units of the task's standard deviation, while there are
        recorded rows to choose from.
    """

    surprises: Array
    sharpness: float
    regret: Array


@dataclass(frozen=True, eq=False)
class Validation:
    """What held-out tasks show; ``learned``, ``cold`` and ``random`` (h, EVALUATIONS) by task."""

    names: tuple[str, ...]
    learned: tuple[HeldOutTask, ...]
    cold: tuple[HeldOutTask, ...]
    random: Array

    @property
    def covered(self) -> tuple[Array, Array]:
        """Share of held-out values inside central intervals of `LEVELS`: learned, cold."""
        return _covered(self.learned), _covered(self.cold)

    @property
    def sharpness(self) -> tuple[float, float]:
        """Mean width of the predictions, learned and cold, in units of a task's spread."""
        learned = float(np.mean([p.sharpness for p in self.learned]))
        return learned, float(np.mean([p.sharpness for p in self.cold]))

    @property
    def evaluations(self) -> int:
        """How many evaluations every task has recorded rows for, with one to spare."""
        return min(len(played.regret) for played in (*self.learned, *self.cold))

    @property
    def curves(self) -> dict[str, Array]:
        """(T,) mean regret by method, for as many evaluations as all tasks have rows."""
        t = self.evaluations
        return {
            "learned": np.mean([p.regret[:t] for p in self.learned], axis=0),
            "cold": np.mean([p.regret[:t] for p in self.cold], axis=0),
            "random": self.random[:, :t].mean(axis=0),
        }

    @property
    def harmed(self) -> tuple[str, ...]:
        """Tasks on which the history made things clearly worse than a cold start."""
        worse = [
            float(a.regret.mean() - b.regret.mean())
            for a, b in zip(self.learned, self.cold, strict=True)
        ]
        return tuple(name for name, w in zip(self.names, worse, strict=True) if w > 0.05)

    def within(self, share: float, evaluations: int) -> float:
        """Regret that this share of the tasks does not exceed after so many evaluations."""
        last = [p.regret[min(evaluations, len(p.regret)) - 1] for p in self.learned]
        return float(np.quantile(last, share, method="higher"))


def validate_history(
    history: History, rng: np.random.Generator, *, folds: int = FOLDS
) -> Validation:
    """Learn from some tasks and try the others, fold by fold."""
    if history.m < 2 * folds:
        raise InputError(f"{history.m} tasks are too few to leave some out; expected {2 * folds}")
    names, learned, cold, random = [], [], [], []
    for rest, held in history.folds(folds):
        prior = learn_prior(rest, certify="none")
        for whole in held.tasks[: max(TASKS // folds, 1)]:
            task = _some_rows(whole, rng)
            if np.ptp(task.y) == 0:
                continue
            seen = rng.permutation(task.n)[:SEEN]
            names.append(task.name)
            learned.append(_try(prior, task, seen))
            cold.append(_try(replace(prior, task_gp=None, calibration=None), task, seen))
            random.append(random_regret(task.y / task.y.std(), EVALUATIONS))
    return Validation(tuple(names), tuple(learned), tuple(cold), np.array(random))


def _try(prior: Prior, task: Task, seen: NDArray[np.intp]) -> HeldOutTask:
    sign = -1.0 if prior.info.minimize else 1.0  # tasks hold what is to be maximised
    rows = prior.space.decode(task.X)
    predictor = prior.optimizer(rows)
    give(predictor, [rows[i] for i in seen], sign * task.y[seen])
    others = np.setdiff1d(np.arange(task.n), seen)
    mean, sd = predictor.predict([rows[i] for i in others])
    surprises = (sign * task.y[others] - mean) / sd
    optimizer, best = prior.optimizer(rows), []
    places = {tuple(row.values()): i for i, row in reversed(list(enumerate(rows)))}
    # Whoever tries all rows finds the best: the last one shows nothing.
    for _ in range(min(EVALUATIONS, max(len(places) - 1, 1))):
        rehearse(optimizer, lambda asked: sign * float(task.y[places[tuple(asked.point.values())]]))
        best.append(float(task.y.max() - sign * optimizer.best().value))
    spread = float(task.y.std())
    return HeldOutTask(surprises, float(sd.mean()) / spread, np.array(best) / spread)


def _some_rows(task: Task, rng: np.random.Generator) -> Task:
    kept = np.sort(rng.permutation(task.n)[:ROWS])
    return Task(task.X[kept], task.y[kept], task.name)


def _covered(played: Sequence[HeldOutTask]) -> Array:
    """Tasks count alike, however many rows they have."""
    from scipy.special import erfinv

    widths = np.sqrt(2) * erfinv(LEVELS)  # so many standard deviations hold that share
    shares = [(np.abs(p.surprises)[:, None] <= widths).mean(axis=0) for p in played]
    return np.asarray(np.mean(shares, axis=0))


def validation_section(prior: Prior, validation: Validation | None) -> str:
    """What tasks say that were left out."""
    held = prior.heldout
    parts = []
    if not held.checked:
        parts.append(paragraph("There are too few tasks to leave any out: nothing is vouched for."))
    elif validation is None:
        hint = "metakel report --history adds calibration and runs on tasks that were left out."
        parts += [_verdict(prior), figures(_gains(prior)), paragraph(hint, "soft")]
    else:
        pictures = _gains(prior), _regret(validation), _calibration(validation)
        parts += [_verdict(prior), figures(*pictures), _harm(validation)]
    if prior.outliers:
        names = ", ".join(prior.outliers[:SHOWN_NAMES])
        parts.append(
            paragraph(f"Predicted worse than white noise by the other tasks: {names}.", "soft")
        )
    return section("How far it can be trusted", *parts)


def _verdict(prior: Prior) -> str:
    held = prior.heldout
    better, count = held.better_than_cold, len(held.log_scores)
    if prior.helps:
        text = (
            f"The history helps: learned from the others, it predicts {better} of {count} "
            "left-out tasks better than a cold start."
        )
        return paragraph(text, "good")
    text = (
        "The history is not used: learned from the others, it predicts the typical left-out task "
        f"hardly better than guessing: its score is {held.log_score:.2f} and has to be "
        f"{NEEDED_LOG_SCORE} or more. Decisions are those of a cold start."
    )
    return paragraph(text, "bad")


def _gains(prior: Prior) -> str:
    """Every left-out task: cold start across, history up; above the diagonal it helped."""
    held = prior.heldout
    varying = [name for name in prior.info.tasks if name not in prior.info.constant]
    names = [varying[s] for s in held.tasks]
    covering = Axis.covering("", held.log_scores, held.cold_log_scores)
    low, high = max(covering.low, WORST_SHOWN), max(covering.high, WORST_SHOWN + 1)
    chart = SvgChart(
        Axis("score of a cold start", low, high), Axis("score with the history", low, high)
    )
    tips = [
        f"{name}\nhistory {g:.2f}, cold {c:.2f}"
        for name, g, c in zip(names, held.log_scores, held.cold_log_scores, strict=True)
    ]
    chart.line([low, high], [low, high], REFERENCE)
    chart.dots(held.cold_log_scores, held.log_scores, LEARNED, tips=tips, size=8)
    caption = (
        "One dot per left-out task; above the line the history predicts better. A score of 0 is "
        "as good as guessing by level and spread alone, and 1 makes what was measured e = 2.7 "
        f"times as likely. Scores below {WORST_SHOWN:g} are drawn there."
    )
    return figure(chart, "Prediction of left-out tasks", caption)


def _regret(validation: Validation) -> str:
    curves = {name: np.maximum(c, FLOOR) for name, c in validation.curves.items()}
    last = validation.evaluations
    steps = np.arange(1, last + 1)
    highest = max(float(max(c.max() for c in curves.values())) * 1.2, 10 * FLOOR)
    chart = SvgChart(
        Axis("evaluations", 1, max(last, 2)), Axis("distance to the best", FLOOR, highest, log=True)
    )
    chart.line(steps, curves["random"], RANDOM, label="random search")
    for name, style, label in (("cold", COLD, "cold start"), ("learned", LEARNED, WITH_HISTORY)):
        tips = [
            f"{label}, {t} evaluations: {number(float(v))}"
            for t, v in zip(steps, validation.curves[name], strict=True)
        ]
        chart.line(steps, curves[name], style, label=label)
        chart.dots(steps, curves[name], style, tips=tips, size=6)
    distance = validation.within(0.9, last)
    reached = f"are within {distance:.2g} spreads of" if distance > 0 else "have found"
    caption = (
        f"Mean over {len(validation.names)} left-out tasks. With the history, 9 of 10 tasks "
        f"{reached} the best of their recorded rows after {last}."
    )
    if last < EVALUATIONS:
        caption += f" The axis stops at {last}: a task has no more recorded rows to choose from."
    return figure(chart, "Tuning left-out tasks", caption)


def _calibration(validation: Validation) -> str:
    chart = SvgChart(Axis("promised share", 0, 1), Axis("share found inside", 0, 1))
    chart.line([0, 1], [0, 1], REFERENCE)
    learned, cold = validation.covered
    for found, style, label in ((cold, COLD, "cold start"), (learned, LEARNED, WITH_HISTORY)):
        tips = [f"promised {p:.0%}, found {f:.0%}" for p, f in zip(LEVELS, found, strict=True)]
        chart.line(LEVELS, found, style, label=label).dots(LEVELS, found, style, tips=tips, size=8)
    with_history, without = validation.sharpness
    caption = (
        f"Intervals for the other values of a left-out task after {SEEN} were observed. On the "
        f"line is honest, above it careful. Width: {with_history:.2g} spreads with the history, "
        f"{without:.2g} without."
    )
    return figure(chart, "Calibration and sharpness", caption)


def _harm(validation: Validation) -> str:
    harmed, count = validation.harmed, len(validation.names)
    if not harmed:
        text = f"No negative transfer on any of {count} left-out tasks that were tuned."
        return paragraph(text, "good")
    names = ", ".join(harmed[:SHOWN_NAMES]) + (" …" if len(harmed) > SHOWN_NAMES else "")
    return paragraph(
        f"Negative transfer on {len(harmed)} of {count} left-out tasks: there a cold "
        f"start found better values sooner ({names})."
    )
