"""Outcomes worked out from an earlier record are those of the record alone."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from metakel.optimize import Record, outcomes
from metakel.optimize.record import BULK, common_length

D0 = 2


def some_records(seed: int, *, bulk: bool = False) -> list[Record]:
    """A record as it grows: asked for, finished in any order, failed, forgotten, in batches."""
    rng, record = np.random.default_rng(seed), Record()
    records = [record]
    for step in range(25):
        for _ in range(int(rng.integers(3)) + (2 * BULK if bulk and step == 8 else 0)):
            record = record.with_pending(None, rng.uniform(-1, 1, D0).round(1))
        waiting = list(record.pending)
        rng.shuffle(waiting)  # type: ignore[arg-type]
        take = len(waiting) if bulk and step == 8 else int(rng.integers(3))
        done = []
        for trial in waiting[:take]:
            value = None if rng.random() < 0.2 else float(rng.standard_normal())
            limits = {"c": float(rng.standard_normal())} if rng.random() < 0.3 else None
            outputs = {"o": 1.0} if rng.random() < 0.3 else None
            done.append(trial.with_result(value, 0.1 if step % 2 else None, limits, outputs))
        if done:
            record = record.with_results(done)
        if waiting[take:] and rng.random() < 0.3:
            record = record.with_forgotten([waiting[take].number])
        records.append(record)
    return records


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_earlier_outcomes_save_work_and_change_nothing(seed, bulk):
    records = some_records(seed, bulk=bulk)
    others = some_records(seed + 100, bulk=bulk)
    for i, record in enumerate(records):
        alone = outcomes(record, d0=D0, sign=-1.0)
        earlier = [records[i - 1], records[i // 2], records[-1], others[i]]
        for before in earlier:
            known = before, outcomes(before, d0=D0, sign=-1.0)
            found = outcomes(record, d0=D0, sign=-1.0, before=known)
            for field in fields(alone):
                one, other = getattr(alone, field.name), getattr(found, field.name)
                np.testing.assert_equal(other, one, err_msg=f"{field.name} of record {i}")


def test_common_length():
    assert common_length((), (1,)) == 0
    for n in range(9):
        for k in range(n):
            changed = (*range(k), -1, *range(k + 1, n))
            assert common_length(tuple(range(n)), changed) == k
        assert common_length(tuple(range(n)), tuple(range(n + 2))) == n
