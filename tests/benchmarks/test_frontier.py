"""The frontier benchmark in small: its negative controls, and that it goes on where it was."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks import frontier_safe as safe
from benchmarks.seeds import Bench


def test_the_goal_rule_crosses_gaps_that_safe_opt_does_not():
    found = [safe.behind_a_gap(seed) for seed in range(10)]
    assert safe.share(found, safe.OURS, "reached") >= 0.5
    assert safe.share(found, safe.SAFE_OPT_3, "reached") <= 0.1
    assert safe.share(found, safe.OURS) == 0


def test_safe_opt_with_two_standard_deviations_is_not_safe_on_the_same_worlds():
    found = [safe.one_limit(seed) for seed in range(12)]
    assert safe.share(found, safe.SAFE_OPT_2) > 0.15
    assert safe.share(found, safe.OURS) <= 0.1
    filled, bad = safe.starts(found)
    assert filled > 0.7
    assert bad < 0.2


def test_results_are_kept_and_only_missing_seeds_are_measured(tmp_path):
    asked = []

    def once(seed):
        asked.append(seed)
        return {"square": seed**2}

    with ThreadPoolExecutor(2) as pool:
        work = Bench(pool, tmp_path, time.time() + 60)
        assert [r["square"] for r in work.measured("a", once, range(3))] == [0, 1, 4]
        assert [r["square"] for r in work.measured("a", once, range(1, 6))] == [1, 4, 9, 16, 25]
        assert sorted(asked) == [0, 1, 2, 3, 4, 5]
        with (tmp_path / "a.jsonl").open("a") as torn:
            torn.write('\n[6, {"squ')  # a run that was killed
        late = Bench(pool, tmp_path, time.time() - 1)  # begins nothing any more
        assert [r["square"] for r in late.measured("a", once, range(50))][-1] == 25
