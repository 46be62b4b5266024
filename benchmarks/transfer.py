"""Decisions on histories: how fast each method finds good rows of tables it has not seen.

``python -m benchmarks.transfer [--quick] [--tables glmnet oboe] [--methods metakel "cold GP, UCB"]
[--seed 1] [--minutes 60] [--update-docs]``

All rows of a test task are candidates, 50 steps, noise-free look-ups, no repeats. Regret is
r_t = (best - best so far) / (best - median); ev05 and ev01 count evaluations to 0.05 and 0.01,
censored at 50. Results are kept, so that a run goes on where it was stopped; a change of the
package repeats our own methods only. ``--seed`` takes the tables that are computed, with data that
nobody has looked at (`make bench-fresh`).
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from math import inf

from benchmarks.docs import update_section
from benchmarks.fresh_tables import MAKERS
from benchmarks.transfer_data import table_names, usable
from benchmarks.transfer_report import report
from benchmarks.transfer_runs import METHODS, NEEDS, SLOW, SLOW_SPLITS, SPLITS, measure

QUICK = ("glmnet", "branin", "hpobench")


def main() -> None:
    """Run, print the report, and write it to the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", help="all that are at hand")
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="NAME", help="all")
    parser.add_argument("--seed", type=int, default=0, help="other than 0: computed tables only")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=inf, help="start nothing after so many")
    parser.add_argument(
        "--quick", action="store_true", help="1 split of three tables, without the slow methods"
    )
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    known = [*MAKERS] if options.seed else table_names()
    if options.quick:
        known = [name for name in known if name in QUICK]
    names = usable(options.tables or known, options.seed)  # before the clock starts
    methods = options.methods or [m for m in METHODS if not (options.quick and m in SLOW)]
    for method in [m for m in methods if m in NEEDS and find_spec(NEEDS[m]) is None]:
        print(f"without {method}: {NEEDS[method]} is not installed", file=sys.stderr)
        methods.remove(method)
    runs = measure(
        names,
        seed=options.seed,
        methods=methods,
        splits=1 if options.quick else options.splits,
        slow_splits=SLOW_SPLITS,
        jobs=options.jobs,
        minutes=options.minutes,
    )
    text = report(runs, seed=options.seed)
    print(text)
    if options.update_docs:
        if options.seed:
            update_section("fresh", "Decisions on fresh tables", text)
        else:
            update_section("transfer", "Decisions on real histories", text)


if __name__ == "__main__":
    main()
