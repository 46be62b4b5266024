"""Tables of `benchmarks.library_search`: losses over the defaults', and the floors that were set.

A floor was set in advance for the geometric mean over data sets and models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.docs import markdown

FITS = (1, 3, 5, 10, 20)
Record = dict[str, Any]
GOAL_ONLY = float("inf")  # where no floor was set
TINY = 1e-6  # losses below count as this: a perfect fit has no ratio
NEEDED = ("metakel", "portfolio of our runs", "Optuna TPE", "FLAML zero-shot")  # for the floors


def merged(records: list[Record]) -> list[Record]:
    """One record for a data set and a model, with the geometric means over the seeds of methods.

    A data set counts once the methods of the floors have searched on it.
    """
    found: dict[tuple[str, str], Record] = {}
    for record in records:
        key = record["set"], record["model"]
        whole = found.setdefault(key, {**record, "methods": {}})
        whole["methods"].setdefault(record["method"], []).append(record)
    for whole in found.values():
        whole["methods"] = {m: _over_seeds(of) for m, of in whole["methods"].items()}
    whole = [r for r in found.values() if r["kind"] in ("own", "unlike")]
    return whole + [r for r in found.values() if set(NEEDED) <= set(r["methods"])]


def methods_of(records: list[Record]) -> list[str]:
    """Those that have searched on all of the data sets."""
    first, *others = (record["methods"] for record in records)
    return [method for method in first if all(method in other for other in others)]


def _over_seeds(searches: list[Record]) -> Record:
    def mean(values: list[Any]) -> float | None:
        return None if None in values else float(np.exp(np.mean(np.log(np.maximum(values, TINY)))))

    if searches[0]["kind"] == "own":
        return searches[0]
    by_fits = {  # more than 20 fits have one seed
        name: {t: mean([s[name][t] for s in searches if t in s[name]]) for t in searches[0][name]}
        for name in ("test", "seconds")
    }
    cv = [mean(list(of)) for of in _columns([search["cv"] for search in searches])]
    return {"cv": cv, **by_fits, "overhead": float(np.mean([s["overhead"] for s in searches]))}


def _columns(rows: list[list[Any]]) -> list[list[Any]]:
    return [[row[i] for row in rows if i < len(row)] for i in range(max(map(len, rows)))]


def _ratio(loss: float | None, other: float | None) -> float:
    if loss is None or other is None:
        return float("nan")
    return float(np.log(max(loss, TINY) / max(other, TINY)))


def _after(record: Record, method: str, fits: int) -> float | None:
    if method == "defaults":
        return float(record["defaults"]["cv"])
    losses = record["methods"][method]["cv"]
    return losses[fits - 1] if len(losses) >= fits else None


def _test(record: Record, method: str, fits: int) -> float | None:
    if method == "defaults":
        return float(record["defaults"]["test"])
    found: float | None = record["methods"][method]["test"].get(str(fits))
    return found


def _mean(logs: list[float]) -> float:
    return float(np.exp(np.mean(logs)))


def _shown(logs: list[float]) -> str:
    return "" if np.isnan(logs).any() or not logs else f"{_mean(logs):.3f}"


def _middle(logs: list[float]) -> str:
    return "" if np.isnan(logs).any() or not logs else f"{np.exp(np.median(logs)):.3f}"


def losses(
    records: list[Record],
    of: Callable[[Record, str, int], float | None],
    shown: Callable[[list[float]], str] = _shown,
) -> str:
    """Geometric means over the loss of the defaults, by method and number of fits."""
    rows = []
    for method in methods_of(records):
        logs = [[_ratio(of(r, method, t), of(r, "defaults", 0)) for r in records] for t in FITS]
        rows.append([method, *map(shown, logs)])
    return markdown(["method", *(f"after {t}" for t in FITS)], rows)


def by_group(records: list[Record]) -> str:
    """The same of metakel and its rivals after 5 fits, for every model and kind of task."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(f"{record['model']}, {record['kind']}", []).append(record)
    methods = methods_of(records)
    rows = []
    for group, found in groups.items():
        cells = [
            _shown([_ratio(_after(r, m, 5), r["defaults"]["cv"]) for r in found]) for m in methods
        ]
        rows.append([group, str(len(found)), *cells])
    return markdown(["after 5 fits", "data sets", *methods], rows)


def seconds(records: list[Record]) -> str:
    """Medians of the seconds of a search, its training included."""
    rows = []
    for method in methods_of(records):
        found = [r["methods"][method] for r in records]
        medians = [np.median([f["seconds"].get(str(t), np.nan) for f in found]) for t in FITS]
        spent = ["" if np.isnan(median) else f"{median:.1f}" for median in medians]
        beside = 1000 * np.median([f["overhead"] for f in found])
        rows.append([method, *spent, f"{beside:.0f}"])
    head = ["seconds, median", *(f"after {t}" for t in FITS), "beside training, ms per fit"]
    return markdown(head, rows)


@dataclass(frozen=True)
class Floor:
    """What was asked for, and what was measured; smaller is better."""

    what: str
    found: float
    floor: float
    goal: float

    def row(self) -> list[str]:
        verdict = "floor missed" if self.found > self.floor + 1e-9 else "floor met"
        if self.floor == GOAL_ONLY:
            verdict = "goal missed"
        if self.found <= self.goal + 1e-9:
            verdict = "goal met"
        floor = "" if self.floor == GOAL_ONLY else f"{self.floor:g}"
        return [self.what, f"{self.found:.3f}", floor, f"{self.goal:g}", verdict]


def _compared(records: list[Record], fits: int, other: str, other_fits: int) -> float:
    logs = [_ratio(_after(r, "metakel", fits), _after(r, other, other_fits)) for r in records]
    return _mean(logs) if logs else float("nan")


def floors(records: list[Record]) -> str:
    """The table of the floors and goals."""
    real = [r for r in records if r["kind"] in ("classification", "regression")]
    long = [r for r in real if len(r["methods"]["metakel"]["cv"]) >= 50]
    strange = [r for r in records if r["kind"] == "unlike" and len(r["methods"]) == 2]
    own = next(r for r in records if r["kind"] == "own")
    worse = np.mean([_after(r, "metakel", 1) > r["defaults"]["cv"] * (1 + 1e-9) for r in real])  # type: ignore[operator]
    sets = sorted({r["set"] for r in real})
    lost = []
    for name in sets:
        of = [r for r in real if r["set"] == name]
        logs = [_ratio(_test(r, "metakel", 10), r["defaults"]["test"]) for r in of]
        lost.append(np.mean(logs) >= 0)
    portfolio, lightgbm = "portfolio of our runs", f"({len(long)} data sets, LightGBM)"

    def over(other: str, fits: int, of: list[Record] = real, its: int = 0) -> float:
        return _compared(of, fits, other, its or fits)

    found = [
        Floor("after 5 fits over TPE after 20", over("Optuna TPE", 5, its=20), 1.0, 1.0),
        Floor(
            f"after 5 fits over TPE after 50 {lightgbm}",
            over("Optuna TPE", 5, long, 50),
            GOAL_ONLY,
            1.0,
        ),
        Floor("after 1 fit over FLAML zero-shot", over("FLAML zero-shot", 1), 0.95, 0.85),
        Floor("after 1 fit over the defaults", over("defaults", 1), 1.0, 0.9),
        Floor("after 1 fit worse than the defaults, share", float(worse), 0.4, 0.2),
        Floor("after 5 fits over the defaults", over("defaults", 5), 0.93, 0.85),
        Floor("after 10 fits over the defaults", over("defaults", 10), 0.80, 0.75),
        Floor("after 3 fits over the portfolio", over(portfolio, 3), 1.0, 0.95),
        Floor("after 5 fits over the portfolio", over(portfolio, 5), 1.0, 0.95),
        Floor(
            "test loss after 10 fits not below the defaults', share of data sets",
            float(np.mean(lost)),
            0.25,
            0.15,
        ),
        Floor(
            f"after 50 fits over GPSampler after 50 {lightgbm}",
            over("Optuna GPSampler", 50, long),
            1.02,
            1.0,
        ),
        Floor("ask and tell, ms of CPU per fit", 1000 * float(np.mean(own["per_fit"])), 30, 10),
        Floor("loading a prior, ms of CPU", 1000 * own["loading"], 300, 100),
    ]
    for name in sorted({r["set"].partition(":")[0] for r in strange}):
        of = [r for r in strange if r["set"].startswith(name)]
        for fits in (5, 20):
            what = f"{name}: after {fits} fits over a cold start after {fits}"
            found.append(Floor(what, _compared(of, fits, "cold start", fits), 1.1, 1.03))
    rows = [floor.row() for floor in found if not np.isnan(floor.found)]
    return markdown(["what (smaller is better)", "measured", "floor", "goal", ""], rows)


def sections(records: list[Record]) -> str:
    """All tables, as the page has them."""
    real = [r for r in records if r["kind"] in ("classification", "regression")]
    if not real:
        return "Nothing has been measured yet."
    sets = {r["set"] for r in real}
    kinds = {
        k: len({r["set"] for r in real if r["kind"] == k}) for k in ("classification", "regression")
    }
    models: dict[str, int] = {}
    for record in real:
        models[record["model"]] = models.get(record["model"], 0) + 1
    counted = ", ".join(f"{model} on {count}" for model, count in models.items())
    intro = (
        f"{len(sets)} data sets ({kinds['classification']} classification, {kinds['regression']} "
        f"regression); {counted}. Geometric means of the loss over that of the defaults."
    )
    parts = [intro, "Cross-validated loss, which the searches see:", losses(real, _after)]
    for kind in kinds:
        of = [r for r in real if r["kind"] == kind]
        if of:
            loss = "log loss" if kind == "classification" else "RMSE"
            parts += [f"The same in {kind} ({loss}) only:", losses(of, _after)]
    parts += [
        "Medians instead of geometric means, which no single data set can move far:",
        losses(real, _after, _middle),
        "Loss on test rows that no search saw:",
        losses(real, _test),
        by_group(real),
        seconds(real),
        "What was asked for:",
        floors(records),
    ]
    return "\n\n".join(parts)
