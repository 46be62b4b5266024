"""Safe search, contexts and the quadrotor: all tables of the docs.

``python -m benchmarks.frontier [--runs 200] [--only line,gap] [--minutes 60] [--update-docs]``

What was measured is kept, and a run that was stopped goes on where it was (`benchmarks.seeds`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from textwrap import fill

import numpy as np

from benchmarks import frontier_contexts as contexts
from benchmarks import frontier_goals as goals
from benchmarks import frontier_real as recorded
from benchmarks import frontier_safe as safe
from benchmarks.docs import markdown, update_section
from benchmarks.frontier_safe import Row, Table
from benchmarks.seeds import Bench, Once, Result, bench
from benchmarks.solver_table import machine

SEED = 181_000  # nothing was developed on these
INTRODUCTION = """`make bench-frontier`. All seeds are fresh: they were fixed before the first look
at them. Worlds of safe search have 80 past tasks of 40 noisy values (half teach, half calibrate),
20 base kernels of which 5 are active, and a limit that a third of the mean task violates. Nobody
names a safe point; the rules of others get our first one. SafeOpt's rule is our own implementation,
because the package does not import on current versions of Python and NumPy. With the missing names
put back, its source made the same choice in 150 of 150 cases
(`python -m benchmarks.safeopt_package PATH`).

200 runs are meant for each table, and a run goes on where an earlier one was stopped. Each table
says how many there are."""
Summary = dict[str, tuple[str, str, str]]  # measured, floor and goal, by name
Part = tuple[list[Table], Summary]


def number(values: object, digits: int = 3) -> str:
    """One number, or several with a slash between them."""
    return " / ".join(f"{value:.{digits}f}" for value in np.atleast_1d(values))


class Sections:
    """The parts of the benchmark, each with its tables and its lines of the summary."""

    def __init__(self, runs: int, work: Bench) -> None:
        self.runs, self.work = runs, work

    def _found(self, name: str, once: Once, offset: int = 0, runs: int | None = None):
        first = SEED + offset
        return self.work.measured(name, once, range(first, first + (runs or self.runs)))

    def line(self) -> Part:
        """One limit, of the objective itself."""
        found = self._found("line", safe.one_limit)
        rules = (safe.OURS, safe.SAFE_OPT_2, safe.SAFE_OPT_3, safe.FEASIBLE)
        filled, bad = safe.starts(found)
        text = f"Safe search, {len(found)} new histories and tasks, delta = 0.1, 40 tries:"
        start = f"The start set from history alone, the same {len(found)} worlds, promised 0.08:"
        tables: list[Table] = [
            (text, safe.HEAD, [safe.safe_row(rule, found, rule) for rule in rules]),
            (start, ("not empty", "holds an unsafe point"), [(number(filled), number(bad))]),
        ]
        regrets = safe.regret(found)[[0, 2]]
        return tables, {
            "any unsafe try, one limit": (
                number(safe.share(found, safe.OURS)),
                "<= 0.05",
                "<= 0.02",
            ),
            "regret over range after 5 tries": (number(regrets[0], 4), "<= 0.02", "<= 0.012"),
            "regret over range after 40 tries": (number(regrets[1], 4), "<= 0.008", "<= 0.004"),
            "start set not empty": (number(filled), ">= 0.80", ">= 0.95"),
            "start set holds an unsafe point": (number(bad), "<= 0.05", "<= 0.05"),
        }

    def limits(self) -> Part:
        """Two limits beside the objective."""
        found = self._found("limits", safe.two_limits, 10_000)
        filled, _ = safe.starts(found)
        text = f"Two limits beside the objective, {len(found)} histories and tasks, 25 tries:"
        rows = [safe.safe_row(f"{safe.OURS} (start in {filled:.2f})", found)]
        unsafe = number(safe.share(found, safe.OURS))
        return [(text, safe.HEAD, rows)], {
            "any unsafe try, two limits": (unsafe, "<= 0.05", "<= 0.02"),
        }

    def elsewhere(self) -> Part:
        """A box and a named space."""
        rows, summary = [], {}
        for name, once, label in (
            ("box", safe.in_a_box, "box of two inputs"),
            ("named", safe.in_a_named_space, "named space with an integer and a choice"),
        ):
            found = self._found(name, once, 20_000)
            about = f"{len(found)} tasks, start in {safe.starts(found)[0]:.2f}"
            rows.append(safe.safe_row(f"{label} ({about})", found))
            summary[f"any unsafe try, {label}"] = (
                number(safe.share(found, safe.OURS)),
                "<= 0.05",
                "<= 0.05",
            )
        text = "Safe search elsewhere, new histories and tasks, 10 tries:"
        return [(text, safe.HEAD, rows)], summary

    def gap(self) -> Part:
        """The optimum behind an unsafe gap."""
        found = self._found("gap", safe.behind_a_gap, 30_000)
        text = (
            f"The optimum behind an unsafe gap, one point vouched for, {len(found)} tasks, "
            "at most 80 tries:"
        )
        rows = [
            (n, *(number(safe.share(found, n, key)) for key in ("reached", "unsafe")))
            for n in (safe.OURS, safe.SAFE_OPT_3)
        ]
        return [(text, ("rule", "reached", "any unsafe try"), rows)], {
            "optimum behind an unsafe gap reached": (rows[0][1], ">= 0.75", ">= 0.90")
        }

    def contexts(self) -> Part:
        """Contexts that are drawn, or chosen against us."""
        found = {
            name: self._found(f"contexts-{name}", partial(contexts.play_all, name), 40_000)
            for name in ("uniform", "adversary")
        }
        rows = [contexts.context_row(name, results) for name, results in found.items()]
        count = len(found["uniform"])
        others = len(found["adversary"])
        text = (
            f"Contexts: cumulative regret of 40 decisions, {count} new histories and tasks, of "
            f"which {others} for the adversary, too:"
        )
        valid = np.mean([result["valid"] for result in found["uniform"]])
        worst = np.mean([result["valid"] for result in found["adversary"]])
        return [(text, contexts.HEAD, rows)], {
            "contexts: regret over the oracle kernel": (rows[0][1], "<= 1.25", "<= 1.1"),
            "contexts: regret over all kernels": (rows[0][4], "<= 0.25", "<= 0.18"),
            "certificates for all contexts valid": (number(valid), ">= 0.95", ">= 0.98"),
            "the same, contexts by an adversary": (number(worst), ">= 0.95", ">= 0.98"),
        }

    def real(self) -> Part:
        """The bundled table; its data sets take the place of seeds."""
        found = self.work.measured("real", recorded.one_task, recorded.tasks())
        text = (
            "The bundled table, every second data set in turn as the new task: the AUC may be at "
            f"most {-recorded.FLOOR} below that of the configuration in use, which is where all "
            f"begin; delta = {recorded.DELTA}, {recorded.TRIES} tries:"
        )
        head = ("rule", "tasks with an unsafe try", "unsafe tries", "regret / range")
        return [(text, head, recorded.real_rows(found))], {}

    def quadrotor(self) -> Part:
        """New vehicles of the example."""
        shown = self._found("quadrotor", partial(goals.quadrotor, 0), 80_000)
        many = self._found("quadrotor-histories", partial(goals.quadrotor, None), 80_000)
        names = [name for name in shown[0] if isinstance(shown[0][name], dict)]
        rows = []
        for label, found in (("that of the example", shown), ("a new one for every 20", many)):
            for name in names:
                runs = [result[name] for result in found]
                unsafe = f"{sum(run['unsafe'] for run in runs)} of {len(runs)}"
                extra = np.array([run["extra"] for run in runs])
                cells = (f"{100 * e.mean():.1f} ({100 * np.median(e):.1f})" for e in extra.T)
                rows.append((label, name, unsafe, *cells, number(_start(found))))
        text = (
            f"The quadrotor of `examples/quadrotor.py`, {len(shown)} new vehicles, 20 flights "
            "each; extra error over the best safe gains in %, mean (median). Beside the history "
            "of the example, one for every 20 vehicles:"
        )
        head = ("history", "rule", "unsafe", "1 flight", "3", "5", "20", "start set unsafe")
        summary = {}
        for label, found in (("", shown), (", new histories", many)):
            unsafe = np.mean([result["metakel"]["unsafe"] for result in found])
            extra = 100 * np.mean([result["metakel"]["extra"][1] for result in found])
            summary[f"quadrotor: vehicles with an unsafe flight{label}"] = (
                number(unsafe),
                "<= 0.06",
                "<= 0.02",
            )
            summary[f"quadrotor: extra error after 3 flights, %{label}"] = (
                number(extra, 1),
                "<= 4",
                "<= 2",
            )
        return [(text, head, rows)], summary


def _start(found: list[Result]) -> float:
    return float(np.mean([result["start"] for result in found]))


NAMES = ("line", "limits", "elsewhere", "gap", "quadrotor", "real", "contexts")


def main() -> None:
    """Run everything and write its section of TABLES.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", help="sections by name, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no seed after these")
    parser.add_argument("--update-docs", action="store_true")
    given = parser.parse_args()
    began, parts, summary = time.time(), [], {}
    chosen = given.only.split(",") if given.only else NAMES
    with bench(
        "frontier", "benchmarks/frontier*.py", jobs=given.jobs, minutes=given.minutes
    ) as work:
        sections = Sections(given.runs, work)
        for name in chosen:
            part: Callable[[], Part] = getattr(sections, name)
            tables, lines = part()
            summary |= lines
            for text, head, rows in tables:
                parts.append(f"{fill(text, 118)}\n\n{markdown(head, rows)}")
                print(parts[-1], f"\n({time.time() - began:.0f} s)\n", flush=True)
    rows: list[Row] = [(name, *cells) for name, cells in summary.items()]
    first = f"{markdown(('what', 'measured', 'floor', 'goal'), rows)}\n\n{machine()}."
    print(first)
    if given.update_docs:
        text = "\n\n".join([INTRODUCTION, first, *parts])
        update_section("frontier", "Safe search", text)


if __name__ == "__main__":
    main()
