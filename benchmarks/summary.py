"""Charts, losses and missed floors of docs/benchmarks.md, numbers of README.md, from TABLES.md.

``python -m benchmarks.summary``
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import fill
from typing import Any

from benchmarks.docs import TABLES, markdown, sections

DOCS = TABLES.parents[1] / "docs"
README = DOCS.with_name("README.md")
PAGE, PICTURES = DOCS / "benchmarks.md", DOCS / "img" / "benchmarks"
OURS, THEIRS, GRAY = "#0072b2", "#d55e00", "#777777"
KEY_NUMBERS = """
Nine tables of past runs, evaluations until within 5 % of the best, as a share of those of a cold
GP-UCB (lower is better):
metakel {ours:.2f}, the programs of others {theirs}, our compact versions of methods from the
literature {own}, random search {random:.2f} (`make bench-transfer`).

The same on tables that were computed after the method was finished, and run once: {anew}; sgd is
real, the others are test functions (`make bench-fresh SEED={seed}`).

No history, LightGBM, XGBoost and forests on 24 data sets of other sources, cross-validated loss
over that of the defaults (lower is better). RandomizedSearchCV and Optuna TPE draw from the ranges
of the library; FLAML zero-shot is one configuration; successive halving does the work of nine fits.
The best first (`make bench-library`):
"""
MISSED = {"no", "missed", "floor missed"}
# Compact versions of our own in the role of a peer (benchmarks/transfer_rivals.py).
OWN_VERSIONS = ("empirical", "history GP", "RGPE", "portfolio", "cold GP", "hand-set", "random")


def tables(text: str) -> Iterator[list[dict[str, str]]]:
    """Every table as rows by the names of its columns."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.M):
        lines = [[c.strip() for c in line.strip("|").split("|")] for line in block.splitlines()]
        if len(lines) > 2:
            yield [dict(zip(lines[0], line, strict=False)) for line in lines[2:]]


def first_number(text: str) -> float:
    found = re.search(r"-?\d*\.?\d+", text)
    return float(found[0]) if found else float("nan")


def figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots()


def histories() -> None:
    """Evaluations of every method over those of a cold GP."""
    table = next(t for t in tables(sections()["transfer"]) if "all tables" in t[0])
    method = next(iter(table[0]))
    kept = [r for r in table if not (r[method].startswith("metakel,"))]
    made, axis = figure(5.4, 4.8)
    for i, row in enumerate(reversed(kept)):
        name = row[method]
        own = name.startswith(OWN_VERSIONS)
        color = OURS if name == "metakel" else GRAY if own else THEIRS
        axis.barh(i, first_number(row["all tables"]), color=color)
    axis.set_yticks(range(len(kept)), [row[method] for row in reversed(kept)])
    axis.axvline(1, color="k", lw=0.8)
    axis.set_xlabel("evaluations needed, over a cold GP-UCB")
    made.savefig(PICTURES / "histories.png", dpi=130)


def library() -> None:
    """Loss over that of the defaults, after so many fits."""
    rows = [r for t in tables(sections()["library"]) for r in t if r.get("method")]
    rows = [r for r in rows if next(iter(r.values())).startswith("all")]
    made, axis = figure(5.2, 3.2)
    fits = [name for name in rows[0] if name.startswith("after")]
    colors = {"metakel": OURS, "random": "k", "portfolio": GRAY}
    for row in rows:
        if row["method"] in colors:
            values = [float(row[name]) for name in fits]
            at = [int(name.split()[1]) for name in fits]
            axis.plot(at, values, "o-", color=colors[row["method"]], label=row["method"])
    axis.axhline(1, color="k", lw=0.8)
    axis.set(xlabel="fits", ylabel="loss over that of the defaults", xscale="log")
    axis.set_xticks(at, [str(t) for t in at])
    axis.minorticks_off()
    axis.legend()
    made.savefig(PICTURES / "library.png", dpi=130)


def curves() -> None:
    """Steps made against the best run lost, of every pruner."""
    made, axis = figure(5.2, 3.4)
    for table in tables(sections()["curves"] + "\n" + sections()["pruners"]):
        if not {"pruner", "steps made", "best stopped"} <= table[0].keys():
            continue
        for row in table:
            ours = row["pruner"].startswith("metakel, delta")
            if "control" in row["pruner"]:
                continue
            marker = "o" if ours and "0.05" in row["pruner"] else "s" if ours else "x"
            steps, lost = first_number(row["steps made"]), first_number(row["best stopped"])
            axis.plot(steps, lost, marker, color=OURS if ours else THEIRS)
    for marker, color, label in (
        ("o", OURS, "metakel, delta 0.05"),
        ("s", OURS, "metakel, delta 0.2"),
        ("x", THEIRS, "pruners of Optuna"),
    ):
        axis.plot([], [], marker, color=color, label=label)
    axis.set(xlabel="share of all steps made", ylabel="best run stopped, share of tasks")
    axis.legend()
    made.savefig(PICTURES / "curves.png", dpi=130)


def coverage() -> None:
    """How often the band held, by default and with the selection alone."""
    rows = [r for t in tables(sections()["selection"]) for r in t if "selection alone" in r]
    made, axis = figure(6.4, 3.4)
    default = sorted(first_number(r["covered (95 %)"]) for r in rows)
    alone = sorted(first_number(r["selection alone"]) for r in rows)
    axis.plot(default, "o-", color=OURS, label="the default")
    axis.plot(alone, "x-", color=GRAY, label="the selected kernels alone, as in the paper")
    axis.axhline(0.9, color="k", lw=0.8)
    axis.set(xlabel="settings, sorted", ylabel="band held at all points and steps", ylim=(0, 1.03))
    axis.legend(loc="lower right")
    made.savefig(PICTURES / "coverage.png", dpi=130)


def missed() -> str:
    """Every floor of every table that was not met."""
    rows = []
    for name, body in sections().items():
        for row in (row for table in tables(body) for row in table):
            verdict = row.get("met", row.get("verdict", row.get("", "")))
            what, value = next(iter(row.values())), row.get("measured", "") or row.get("width", "")
            if verdict.lower() in MISSED:
                rows.append([what, value, row.get("floor", row.get("asked", "")), name])
            rows += [[f"{what}: {said}", *numbers, name] for said, *numbers in beyond(row)]
    return markdown(["floor that is missed", "measured", "asked", "table"], rows)


def beyond(row: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Cells above their floor, which tables of curves have in the heading or beside the cell."""
    share, floor = row.get("best stopped", ""), row.get("floor", "")
    if share and floor and float(share) > float(floor):
        yield f"best stopped, delta {row['delta']}", share, floor
    for column, cell in row.items():
        if found := re.search(r"(.*) \(floor (.*)\)", column):
            pairs = zip(cell.split("; "), found[2].split("; "), strict=True)
            if any(float(value) > float(most) for value, most in pairs):
                yield found[1], cell, f"<= {found[2]}"


def ahead() -> str:
    """On every table, and on the data sets of the library, who needs less than metakel."""
    rows = []
    for name in ("transfer", "fresh"):
        table = next(t for t in tables(sections()[name]) if "all tables" in t[0])
        method, *_ = table[0]
        ours = next(row for row in table if row[method] == "metakel")
        others = [row for row in table if not row[method].startswith("metakel")]
        for column in list(ours)[4:]:
            where = f"{column}, evaluations over a cold GP" + ", fresh" * (name == "fresh")
            rows.append((where, ours[column], [(r[method], r[column]) for r in others]))
    table = next(t for t in tables(sections()["library-search"]) if "after 5" in t[0])
    ours = next(row for row in table if row["method"] == "metakel")
    for column in (name for name in list(ours)[1:] if ours[name]):
        where = f"real training, loss over the defaults', {column} fits"
        rows.append((where, ours[column], [(r["method"], r[column]) for r in table]))
    lines = []
    for where, value, others in rows:
        better = [f"{name} {v}" for name, v in others if first_number(v) < first_number(value)]
        lines.append([where, value, ", ".join(better) or "nobody"])
    return markdown(["measured", "metakel", "ahead of it"], lines)


def key_numbers() -> str:
    """The first numbers that a reader of README.md sees."""
    table = next(t for t in tables(sections()["transfer"]) if "all tables" in t[0])
    method, *_ = table[0]
    every = {row[method]: first_number(row["all tables"]) for row in table}
    names = {name for name in every if not name.startswith("metakel")} - {"random"}
    owned = {name for name in names if name.startswith(OWN_VERSIONS)}
    own, theirs = (
        f"{min(every[n] for n in some):.2f} to {max(every[n] for n in some):.2f}"
        for some in (owned, names - owned)
    )
    fresh = next(t for t in tables(sections()["fresh"]) if "all tables" in t[0])
    ours = next(row for row in fresh if row[next(iter(row))] == "metakel")
    anew = ", ".join(f"{name} {ours[name]}" for name in list(ours)[4:])
    trained = next(t for t in tables(sections()["library-search"]) if "after 5" in t[0])
    text = KEY_NUMBERS.format(
        ours=every["metakel"],
        theirs=theirs,
        own=own,
        random=every["random"],
        anew=anew,
        seed=re.findall(r"--seed (\d+)", sections()["fresh"])[0],
    )
    lines = [" ".join(line.split()) for line in text.strip().split("\n\n")]
    listed = [fill(line, 118, initial_indent="- ", subsequent_indent="  ") for line in lines]
    return "\n".join((*listed, *best_first(trained)))


def best_first(trained: list[dict[str, str]]) -> Iterator[str]:
    """After so many fits: every program with its loss, the smallest first."""
    shown = [row for row in trained if not row["method"].startswith(OWN_VERSIONS)]
    for after in ("after 1", "after 5", "after 10", "after 20"):
        ranks = sorted((row for row in shown if row[after]), key=lambda row: float(row[after]))
        losses = [f"{row['method']} {row[after]}" for row in ranks]
        losses += [f"{row['method']} not measured" for row in shown if not row[after]]
        line = f"{after} fit{'s' * (after != 'after 1')}: {', '.join(losses)}"
        yield fill(
            line, 118, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )


def write() -> None:
    """The lists of docs/benchmarks.md, and the numbers of README.md."""
    for page, name, made in (
        (PAGE, "ahead", ahead()),
        (PAGE, "missed", missed()),
        (README, "key numbers", key_numbers()),
    ):
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        head, _, rest = page.read_text(encoding="utf-8").partition(begin)
        page.write_text(head + begin + made + end + rest.partition(end)[2], encoding="utf-8")


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for draw in (histories, library, curves, coverage):
        draw()
    write()


if __name__ == "__main__":
    main()
