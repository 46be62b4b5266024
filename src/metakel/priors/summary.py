"""What a person should know about a prior: a summary, which parameters matter, and pictures.

`explain` divides the variance of what was learned by Sobol's decomposition over the space: with x
and x' independent and x^I equal to x in the parameters I and to x' elsewhere, Cov(f(x), f(x^I)) is
the variance that the parameters I explain alone. For the differences between tasks the variances
of all principal functions add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from metakel._arrays import Array
from metakel.charts import LEARNED, Axis, SvgChart, card, short, table
from metakel.errors import first_of
from metakel.gp.processes import LearnedProcess
from metakel.priors.principal import LEADING, NEEDED_LOG_SCORE
from metakel.space import Categorical, Space

if TYPE_CHECKING:
    from metakel.optimize.certificate import Certificate
    from metakel.optimize.replays import RegretScores
    from metakel.priors.prior import Prior

POINTS = 1024
CURVE_POINTS, GRID = 256, 41
MOST_FOR_PAIRS = 8
USEFUL = 2.0  # a certificate above so many scales of a task says nothing


@dataclass(frozen=True, eq=False)
class Curve:
    """Effect of one parameter, averaged over the others, in units of a task's scale.

    ``values`` (g,) are the parameter's, ``common`` (g,) the common shape, ``spread`` (g,) the
    standard deviation between tasks; ``numeric`` says whether the values are numbers.
    """

    name: str
    values: list[Any]
    common: Array
    spread: Array
    log: bool
    numeric: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """Shares of variance by parameter and pair, and the curves behind them.

    ``common`` and ``differences`` map "a" (alone) and "a x b" (together) to shares of 1; "rest"
    is what needs three or more parameters.
    """

    common: dict[str, float]
    differences: dict[str, float]
    curves: tuple[Curve, ...] = field(repr=False)

    @property
    def _rows(self) -> list[tuple[str, float, float]]:
        """Names with both shares, the largest first."""
        rows = [(name, share, self.differences[name]) for name, share in self.common.items()]
        return sorted(rows, key=lambda row: -row[1] - row[2])

    def __str__(self) -> str:
        width = max(len(name) for name in self.common)
        lines = [f"  {'parameter':{width}}  common shape  differences"]
        lines += [
            f"  {name:{width}}  {common:12.0%}  {differs:11.0%}"
            for name, common, differs in self._rows
            if max(common, differs) >= 0.005
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[name, f"{common:.0%}", f"{differs:.0%}"] for name, common, differs in self._rows]
        header = ["parameter", "common shape", "differences between tasks"]
        return card("Shares of the variance", table(header, rows))


# (n, d0) -> (n, 1 + J) values of the mean and the scaled principal functions
Functions = Callable[[Array], Array]


def explain(task_gp: LearnedProcess, space: Space, *, minimize: bool = False) -> Explanation:
    """Shares and curves of what was learned."""

    def functions(X: Array) -> Array:
        return np.asarray(task_gp.basis.shared(X, task_gp.basis.landmarks) @ task_gp.pull)

    def explained(Z: Array) -> Array:
        """(2,) covariances of f(x) and f(z): of the mean, and summed over the differences."""
        left, right = functions(X), functions(Z)
        center = (left.mean(axis=0) + right.mean(axis=0)) / 2
        products = ((left - center) * (right - center)).mean(axis=0)
        return np.array([products[0], products[1:].sum()])

    varying = space.free
    uniform = even_points(POINTS, 2 * len(varying))
    X, other = np.empty((2, POINTS, space.d0))
    for i, name in enumerate(varying):
        X[:, space.columns[name]] = space[name].sample(uniform[:, i])
        other[:, space.columns[name]] = space[name].sample(uniform[:, len(varying) + i])

    def mixed(kept: Sequence[str]) -> Array:
        Z = other.copy()
        for name in kept:
            Z[:, space.columns[name]] = X[:, space.columns[name]]
        return Z

    subsets: list[tuple[str, ...]] = [(name,) for name in varying]
    if len(varying) <= MOST_FOR_PAIRS:
        subsets += list(combinations(varying, 2))
    found = {names: explained(mixed(names)) for names in subsets}
    total, sign = explained(X), -1.0 if minimize else 1.0
    curves = tuple(_curve(functions, space, name, X[:CURVE_POINTS], sign) for name in varying)
    return Explanation(_shares(found, total, 0), _shares(found, total, 1), curves)


def _shares(explained: dict[tuple[str, ...], Array], total: Array, part: int) -> dict[str, float]:
    whole = float(total[part])
    alone = {s: float(v[part]) for s, v in explained.items()}
    shares: dict[str, float] = {}
    for names, value in alone.items():
        own = value if len(names) == 1 else value - alone[names[:1]] - alone[names[1:]]
        shares[" x ".join(names)] = max(own / whole, 0.0) if whole > 1e-12 else 0.0
    # They are parts of one variance, and estimated one by one.
    found = max(sum(shares.values()), 1.0)
    shares = {names: share / found for names, share in shares.items()}
    shares["rest"] = 1 - sum(shares.values()) if whole > 1e-12 else 0.0
    return shares


def _curve(functions: Functions, space: Space, name: str, X: Array, sign: float) -> Curve:
    parameter, numeric = space[name], not isinstance(space[name], Categorical)
    codes = np.linspace(-1, 1, GRID)[:, None] if numeric else np.eye(parameter.width)
    points = np.repeat(X[None], len(codes), axis=0)
    points[:, :, space.columns[name]] = codes[:, None, :]
    effects = functions(points.reshape(-1, X.shape[1])).reshape(len(codes), len(X), -1).mean(axis=1)
    centered = effects - effects.mean(axis=0)
    values = parameter.decode(codes)
    return Curve(
        name=name,
        values=values,
        common=sign * centered[:, 0],
        spread=np.sqrt((centered[:, 1:] ** 2).sum(axis=1)),
        log=bool(getattr(parameter, "log", False)),
        numeric=numeric and not isinstance(values[0], str),
    )


def even_points(n: int, d: int) -> Array:
    """(n, d) points spread evenly over [0, 1)^d: multiples of the generalised golden ratio."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (d + 1))
    steps = (1 / ratio) ** np.arange(1, d + 1)
    return np.asarray((0.5 + np.outer(np.arange(n), steps)) % 1.0)


EFFECT = "effect, in spreads of a task"


def draw_effect(chart: SvgChart, curve: Curve) -> None:
    """The common effect of a parameter, with one standard deviation between tasks."""
    lower, upper = curve.common - curve.spread, curve.common + curve.spread
    common, between = "common", "± between tasks"
    if curve.numeric:
        chart.band(curve.values, lower, upper, LEARNED, label=between)
        chart.line(curve.values, curve.common, LEARNED, label=common)
        return
    places = np.arange(len(curve.values))
    for place, low, high in zip(places, lower, upper, strict=True):
        label = "" if place else between
        chart.band([place - 0.06, place + 0.06], [low] * 2, [high] * 2, LEARNED, label=label)
    tips = [str(value) for value in curve.values]
    chart.dots(places, curve.common, LEARNED, label=common, tips=tips, size=10)


def effect_axis(curve: Curve) -> Axis:
    """The values of a parameter from end to end."""
    if not curve.numeric:
        return Axis.of(curve.name, [str(value) for value in curve.values])
    return Axis(curve.name, float(curve.values[0]), float(curve.values[-1]), log=curve.log)


LEVEL = 0.1


def summary(prior: Prior) -> str:
    """Several lines: where from, how far to trust it, what is common, what differs."""
    info = prior.info
    verb = "minimise" if info.minimize else "maximise"
    inputs = first_of(prior.space.names)
    lines = [
        f"Prior from {info.origin}: {verb} {info.output}; {inputs}.",
        *trust(prior),
        *_common_shape(prior),
        *_differences(prior),
        _new_task(prior),
        _certificate(prior),
        _norm_bound(prior),
        *_findings(prior),
    ]
    return "\n  ".join(lines)


def trust(prior: Prior) -> list[str]:
    """Whether the history is used, and what that rests on."""
    held = prior.heldout
    if prior.task_gp is None:
        return ["No past task varies, so nothing was learned: decisions are those of a cold start."]
    weight = prior.beside.cold_weight
    started = (
        f"The history is used; a cold start beside it has weight {weight:g} at first, "
        "and more when it predicts better."
        if weight
        else "The history is used alone, without a cold start beside it."
    )
    if not held.checked:
        return [f"No held-out check: one task cannot be checked against others. {started}"]
    verdict = "passed" if prior.helps else "FAILED"
    score = f"{held.log_score:+.2f} nats per observation over white noise"
    better = f"{held.better_than_cold} of {len(held.log_scores)}"
    return [
        f"Held-out check {verdict}: {score} (threshold {NEEDED_LOG_SCORE}).",
        f"Better than a cold start on {better} held-out tasks.",
        started if prior.helps else "The history is NOT used: decisions are those of a cold start.",
    ]


def promise(prior: Prior, found: Certificate) -> str:
    """The certificate in one sentence."""
    if found.reason:
        return f"Nothing is promised about the best configuration: {found.reason}."
    if not useful(prior, found, found.regret):
        return "Nothing useful can be promised yet of how much better another one could be."
    text = str(found)
    return f"{text[:1].upper()}{text[1:]}."


def useful(prior: Prior, found: Certificate, regret: Any) -> Any:
    """Whether regrets say something: they are not above what tasks usually differ by."""
    if prior.scale.log:
        return regret < found.lower if prior.info.minimize else np.isfinite(regret)
    return regret <= USEFUL * prior.model.scale


def _common_shape(prior: Prior) -> list[str]:
    if prior.task_gp is None or not prior.info.mean:
        return []
    top = prior.optimizer().peek()
    where = first_of(tuple(f"{name} = {short(value, 3)}" for name, value in top.items()))
    if not prior.helps:
        return [f"Tried first: {where}, the middle of the space."]
    if prior.info.tried_first:
        return [f"Tried first: {where}, as measured on past tasks."]
    return [f"Common shape: best near {where}, which is tried first."]


def _differences(prior: Prior) -> list[str]:
    if prior.task_gp is None:
        return []
    kept, count = prior.task_gp.eta.size, min(LEADING, prior.task_gp.basis.r)
    text = f"Differences between tasks: {kept} of {count} principal functions are needed"
    largest = sorted(prior.explain().differences.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.01)
    return [f"{text}; their variance is due to {shown}." if kept and shown else f"{text}."]


def _new_task(prior: Prior) -> str:
    model = prior.model
    level_sd = float(model.scale * np.sqrt(model.level_variance))
    if prior.scale.log:
        low, high = map(float, prior.scale.interval(model.level - level_sd, model.level + level_sd))
        return (
            f"A new task has level {prior.scale.value(model.level):.3g} ({low:.3g} to {high:.3g}), "
            f"and its values differ by a factor of {np.exp(model.scale):.2g} (one standard "
            "deviation)."
        )
    level = prior.scale.value(model.level)
    low, high = np.clip([level - level_sd, level + level_sd], *prior.output_range)
    clipped = high - low < 2 * level_sd * (1 - 1e-9)
    spread = f"({low:.3g} to {high:.3g})" if clipped else f"+- {level_sd:.2g}"
    return (
        f"A new task has level {level:.3g} {spread} and scale {model.scale:.2g} within a "
        f"factor of {np.exp(model.spread):.2g} (one standard deviation)."
    )


def _certificate(prior: Prior) -> str:
    found = prior.certificate
    if found is None:
        return "Certificates: none, as the optimizer was not replayed on past tasks."
    if isinstance(found.table, str):
        return f"Certificates: none, {found.table}."
    return (
        f"Certificates of the regret rest on replays of {found.table.tasks} past tasks, up to "
        f"{found.table.horizon} values each.{_odds(found.table)}"
    )


def _odds(scores: RegretScores) -> str:
    """delta is an average over histories; what it can be for this one."""
    for delta in (0.1, 0.2):
        if not scores.missing(delta):
            return (
                f" At delta {delta:g} they fail for one task in {1 / delta:.0f}, on average over "
                f"histories; with this history for at most {scores.failure_probability(delta):.0%} "
                "of the tasks (confidence 0.9)."
            )
    return f" For a promise at delta 0.2, {scores.missing(0.2)} more are needed."


def _norm_bound(prior: Prior) -> str:
    if prior.calibration is None:
        return f"Norm bound: none, {prior.info.unbounded}."
    bound, count = prior.norm_bound(LEVEL), len(prior.calibration.norms)
    if isinf(bound):
        return f"Norm bound: none at {1 - LEVEL:.0%} confidence, only {count} tasks were held out."
    return (
        f"Norm bound: {bound:.3g} at {1 - LEVEL:.0%} confidence, for a task exchangeable with "
        f"these ({count} held-out tasks)."
    )


def _findings(prior: Prior) -> list[str]:
    info = prior.info
    worse, equal, raised = prior.outliers, info.constant, info.winsorized
    found = {
        f"Predicted worse than white noise by the other tasks: {first_of(worse)}.": worse,
        f"Not learned from, as all values are equal: {first_of(equal)}.": equal,
        f"{raised} very bad values were raised to Tukey's fence of their task.": raised,
    }
    lines = [line for line, applies in found.items() if applies]
    return [*lines, *(f"Note: {note}" for note in info.notes)]
