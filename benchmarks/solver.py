"""Our group lasso solver against celer, skglm and adelie, each at a certified gap of 1e-10.

``python -m benchmarks.solver [--only paper,a] [--quick] [--json FILE] [--update-docs]``

Every solver waits in a process of its own with one BLAS thread and its design already built; the
solvers take turns, and medians are compared. Ours is charged for the construction of the problem
and its Gram matrices. A rival runs at the loosest tolerance of its ladder that certifies the gap;
one that reaches it with none is raced at its best and marked "flattered".
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from math import inf, nan
from pathlib import Path

from benchmarks.docs import update_section
from benchmarks.solver_contestants import LADDERS
from benchmarks.solver_costs import first_call_seconds, import_seconds, memory_multiple
from benchmarks.solver_problems import PROBLEMS
from benchmarks.solver_scaling import Curve, as_lines, draw, measure_curves
from benchmarks.solver_table import (
    CONVERGES,
    FIRST_CALL,
    IMPORT,
    MEMORY,
    RACES,
    TARGET_GAP,
    Goal,
    Row,
    as_markdown,
    machine,
    milliseconds,
)
from benchmarks.solver_worker import ROOT, TimedOut, Worker, adelie_python

EXTRAS = ("memory", "first", "scaling")
RACE_SECONDS = 60.0
BURST_SECONDS = 0.5  # short fits are repeated within a turn, until the processor is awake
FIGURE = Path("docs/img/solver-scaling.png")
LEGEND = """\
Times are medians of CPU time, which a busy machine disturbs least; ours include the construction of
the problem and its Gram matrices, the rivals'
exclude building their design. Gaps are duality gaps relative to the mean square of y, recomputed
for every solver from its coefficients and the raw data; a rival marked flattered stopped at a
looser gap than 1e-10. The `path` rows are 100 values of lambda down to lambda_max / 1000, with the
worst gap of the 100; `-low` is lambda at 0.01 lambda_max. On c the measure is our time over that of
one batched Gram (`np.matmul`). Memory is the peak while solving, features included, over the
features."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds of turns, the limit of a fit, the budget of a solver.

    The processor changes its speed from turn to turn, so a race has as many rounds as fit into
    `RACE_SECONDS`, within these bounds.
    """

    rounds: int = 9
    most: int = 45
    limit: float = 90.0
    budget: float = 15.0


QUICK = Effort(rounds=3, most=3, limit=60.0, budget=3.0)


@dataclass
class Result:
    """What one solver did on one problem; no seconds means that it hit the limit."""

    solver: str
    tol: float
    gap: float
    objective: float
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def choose_tolerance(worker: Worker, limit: float) -> Result:
    """The loosest tolerance of the ladder that certifies the gap, else the nearest to it."""
    best = Result(worker.solver, LADDERS[worker.solver][0], inf, nan)
    for tol in LADDERS[worker.solver]:
        try:
            timing = worker.fit(tol, limit=limit)
        except TimedOut:
            return best
        if not timing.gap >= best.gap:
            best = Result(worker.solver, tol, timing.gap, timing.objective, timing.seconds)
        if not timing.gap > TARGET_GAP:
            break
    return best


def race(file: Path, workers: list[Worker], effort: Effort) -> dict[str, Result]:
    """Let the solvers take turns on one problem."""
    results = {}
    for worker in workers:
        try:
            worker.load(file)
        except (OSError, RuntimeError) as error:
            print(f"{worker.solver} is left out: {error}", file=sys.stderr)
        else:
            results[worker.solver] = choose_tolerance(worker, effort.limit)
    # The fit that found the tolerance counts only where another would take too long.
    present = [worker for worker in workers if worker.solver in results]
    running = [w for w in present if 0 < sum(results[w.solver].seconds) < effort.budget]
    first = {w.solver: results[w.solver].seconds[0] for w in running}
    for worker in running:
        results[worker.solver].seconds = []
    repeats = {name: max(1, min(20, int(BURST_SECONDS / t))) for name, t in first.items()}
    turn_seconds = sum(first[name] * repeats[name] for name in first)
    rounds = int(RACE_SECONDS / max(turn_seconds, 1e-3))
    for _ in range(max(effort.rounds, min(effort.most, rounds))):
        for worker in running:
            result = results[worker.solver]
            if sum(result.seconds) < effort.budget:
                repeat = repeats[worker.solver]
                turn = worker.fit(result.tol, repeat=repeat, limit=effort.limit)
                result.seconds += turn.seconds
                result.gap = max(result.gap, turn.gap)
    return results


def row_of(goal: Goal, results: dict[str, Result], limit: float) -> Row:
    """A finished race as a line of the table."""
    ours = results["metakel"]
    theirs = results.get(goal.against)
    if theirs is None:
        missing = "not run" if goal.against in LADDERS else "-"
        return Row(goal, nan, milliseconds(ours.median), missing, our_gap=ours.gap)
    late = not theirs.seconds
    time = limit if late else theirs.median
    return Row(
        goal,
        value=ours.median / time if goal.at_most else time / ours.median,
        ours=milliseconds(ours.median),
        theirs=("> " if late else "") + milliseconds(time),
        our_gap=ours.gap,
        their_gap=None if late or goal.against == "gram" else theirs.gap,
        lower_bound=late,
    )


def run_races(
    names: list[str], effort: Effort, adelie: Path, folder: Path
) -> Iterator[tuple[list[Row], dict[str, Result]]]:
    """Race by race: its lines of the table, and what every solver did."""
    workers: dict[str, Worker] = {}
    for name in names:
        goals = [goal for goal in RACES + CONVERGES if goal.problem == name]
        for solver in ["metakel", *(goal.against for goal in goals if goal.against in LADDERS)]:
            if solver not in workers:
                python = adelie_python(adelie) if solver == "adelie" else sys.executable
                workers[solver] = Worker(solver, python)
        file = folder / f"{name}.npz"
        PROBLEMS[name]().save(file)
        rivals = [workers[goal.against] for goal in goals if goal.against in LADDERS]
        results = race(file, [workers["metakel"], *rivals], effort)
        file.unlink()
        yield [row_of(goal, results, effort.limit) for goal in goals], results
    for worker in workers.values():
        worker.close()


def cost_rows(names: list[str]) -> list[Row]:
    """Memory and first use."""
    rows = []
    if "memory" in names:
        multiple = memory_multiple(MEMORY.problem)
        rows.append(Row(MEMORY, multiple, "peak memory"))
    if "first" in names:
        for goal, seconds in ((IMPORT, import_seconds()), (FIRST_CALL, first_call_seconds())):
            rows.append(Row(goal, seconds, milliseconds(seconds)))
    return rows


def report(rows: list[Row], curves: list[Curve], where: str, command: str) -> str:
    """The section of the documentation, which is also what is printed."""
    parts = [f"Made by `{command}` on {where}."]
    if rows:
        parts += [as_markdown(rows), LEGEND]
    if curves:
        parts += [as_lines(curves), f"![Cost of a solve](../{FIGURE})"]
    return "\n\n".join(parts)


def parse(arguments: list[str]) -> argparse.Namespace:
    every = [*PROBLEMS, *EXTRAS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solver", description=__doc__)
    parser.add_argument("--only", help=f"comma-separated, of: {', '.join(every)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fits up to 60 s")
    parser.add_argument("--limit", type=float, help="seconds after which a fit is given up")
    parser.add_argument("--json", type=Path, help="file for every measured number")
    parser.add_argument("--update-docs", action="store_true", help="rewrite its page")
    parser.add_argument(
        "--adelie", type=Path, default=ROOT / ".venv-adelie", help="its environment"
    )
    options = parser.parse_args(arguments)
    options.names = options.only.split(",") if options.only else every
    if unknown := set(options.names) - set(every):
        parser.error(f"--only knows {', '.join(every)}; found {', '.join(sorted(unknown))}")
    return options


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    effort = QUICK if options.quick else Effort()
    if options.limit:
        effort = replace(effort, limit=options.limit)
    where, rows, races = machine(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        raced = [name for name in PROBLEMS if name in options.names]
        for lines, results in run_races(raced, effort, options.adelie, Path(folder)):
            rows += lines
            races[lines[0].goal.problem] = {name: asdict(r) for name, r in results.items()}
            print("\n".join(as_markdown(lines).splitlines()[2:]), file=sys.stderr, flush=True)
        rows += cost_rows(options.names)
        curves = measure_curves(Path(folder)) if "scaling" in options.names else []
    if curves:
        draw(curves, ROOT / FIGURE)
    section = report(rows, curves, where, " ".join(["python -m benchmarks.solver", *arguments]))
    print(section)
    if options.json:
        slopes = {curve.quantity: {**asdict(curve), "slope": curve.slope} for curve in curves}
        table = [{**asdict(row), "verdict": row.verdict} for row in rows]
        content = {"machine": where, "table": table, "races": races, "scaling": slopes}
        options.json.write_text(json.dumps(content, indent=1))
    if options.update_docs:
        update_section("solver", "Solver", section)


if __name__ == "__main__":
    main(sys.argv[1:])
