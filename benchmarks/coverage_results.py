"""All runs of the coverage benchmark, summarised, and what was asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage_runs import HORIZON, Game, PaperRun, Sampling, Trace
from benchmarks.coverage_worlds import CONTESTANTS, DELTA, Scaling
from metakel._arrays import Array

Setting = tuple[Scaling, Sampling]
PAPER: tuple[Setting, ...] = (("sup", "uniform"), ("sup", "ucb"), ("l2", "uniform"), ("l2", "ucb"))
CELLS = tuple((d, norm) for norm in (0.1, 1.0) for d in (1, 2, 3))
# Coefficients on all kernels of k*, as in the width table, or on a random part like past tasks.
GAMES: tuple[tuple[Scaling, bool], ...] = (("sup", True), ("sup", False), ("l2", True))


@dataclass(frozen=True)
class Summary:
    """One contestant in one setting.

    Attributes
    ----------
    half_widths : (looks,) array
        Mean over the domain and the runs.
    covered : float
        Share of runs in which f was inside at all points and all times looked at.
    alarms : float
        Share of runs in which the alarm rang.
    """

    half_widths: Array
    covered: float
    alarms: float

    @staticmethod
    def of(traces: Sequence[Trace]) -> Summary:
        return Summary(
            np.mean([trace.half_widths for trace in traces], axis=0),
            float(np.mean([trace.covered for trace in traces])),
            float(np.mean([trace.alarm_at is not None for trace in traces])),
        )


@dataclass(frozen=True)
class Results:
    """Everything that was measured.

    Attributes
    ----------
    paper : runs of the paper's example by scaling and sampling
    noisy : runs of the noise-dominated check by d and B
    missing : times of the alarm by scaling, with one kernel that f uses removed
    games : runs of GP-UCB by scaling and by whether f uses all kernels
    noisy_games : runs of GP-UCB where the noise dominates
    """

    paper: Mapping[Setting, Sequence[PaperRun]]
    noisy: Mapping[tuple[int, float], Sequence[Mapping[str, Trace]]]
    missing: Mapping[Scaling, Sequence[int | None]]
    games: Mapping[tuple[Scaling, bool], Sequence[Mapping[str, Game]]]
    noisy_games: Sequence[Game]

    def summaries(self, setting: Setting) -> dict[str, Summary]:
        runs = self.paper[setting]
        return {name: Summary.of([run.traces[name] for run in runs]) for name in CONTESTANTS}

    def noisy_summaries(self, cell: tuple[int, float]) -> dict[str, Summary]:
        runs = self.noisy[cell]
        return {name: Summary.of([run[name] for run in runs]) for name in runs[0]}

    @property
    def recovered(self) -> float:
        """Share of the runs in which learning found every kernel of k*."""
        return float(np.mean([run.recovered for runs in self.paper.values() for run in runs]))

    @property
    def played(self) -> list[Game]:
        """All games, whatever the kernel."""
        paper = [game for runs in self.games.values() for run in runs for game in run.values()]
        return [*paper, *self.noisy_games]


@dataclass(frozen=True)
class Goal:
    """A number to reach: at least the floor, or with ``at_most`` not above it."""

    what: str
    floor: float
    value: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.floor if self.at_most else self.value >= self.floor

    def cells(self) -> list[str]:
        sign = "<=" if self.at_most else ">="
        return [
            self.what,
            f"{sign} {self.floor:g}",
            f"{self.value:.3g}",
            "met" if self.met else "MISSED",
        ]


def goals(results: Results) -> list[Goal]:
    """What the confidence sets and GP-UCB are held to."""
    return [
        *_width_goals(results),
        *_alarm_goals(results),
        *_regret_goals(results),
        *_certificate_goals(results),
    ]


def _width_goals(results: Results) -> list[Goal]:
    found = []
    for scaling in ("sup", "l2"):
        of = results.summaries((scaling, "uniform"))
        last = {name: summary.half_widths[HORIZON] for name, summary in of.items()}
        found += [
            Goal(
                f'{scaling}: default half-width at t = 50, share of "paper"',
                0.05,
                last["dmm"] / last["paper"],
                at_most=True,
            ),
            Goal(
                f"{scaling}: the same over that of the true kernel",
                2.0,
                last["dmm"] / last["dmm-true"],
                at_most=True,
            ),
        ]
    worst = min(results.summaries(setting)["dmm"].covered for setting in PAPER)
    noisy = min(results.noisy_summaries(cell)["dmm"].covered for cell in CELLS)
    control = max(results.summaries(setting)["pointwise"].covered for setting in PAPER)
    return [
        *found,
        Goal("anytime coverage of the default, lowest of the four tables", 1 - DELTA, worst),
        Goal("anytime coverage of the default, lowest of the noise-dominated", 1 - DELTA, noisy),
        Goal("negative control: the pointwise band, highest of the four", 0.6, control, True),
    ]


def _alarm_goals(results: Results) -> list[Goal]:
    false = max(results.summaries(setting)["dmm"].alarms for setting in PAPER)
    rings = [
        Goal(
            f"{scaling}: alarm by t = 50 with one kernel removed",
            0.9,
            float(np.mean([time is not None for time in times])),
        )
        for scaling, times in results.missing.items()
    ]
    return [*rings, Goal("alarm with nothing removed, highest of the four", DELTA, false, True)]


def _regret_goals(results: Results) -> list[Goal]:
    runs = results.games["sup", True]
    wins = np.mean([run["learned"].regret < 0.5 * run["full"].regret for run in runs])
    mean = {name: float(np.mean([run[name].regret for run in runs])) for name in runs[0]}
    return [
        Goal("GP-UCB, 40 steps: share of seeds with less than half of k_full's regret", 0.9, wins),
        Goal(
            "GP-UCB, 40 steps: mean regret over that of the true kernel",
            2.0,
            mean["learned"] / mean["true"],
            at_most=True,
        ),
    ]


def _certificate_goals(results: Results) -> list[Goal]:
    violated = sum(game.violated for game in results.played if game.covered)
    return [Goal("steps of covered runs at which the certificate was violated", 0, violated, True)]
