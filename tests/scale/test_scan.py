"""A scan of Parquet files is the history they hold."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sharded_histories import LEGENDRE, history, write

import metakel as mk
from metakel.errors import ShardError
from metakel.grouplasso import lambda_max, solve
from metakel.learn import as_problem


def read_back(scan):
    """All rows of a scan, in its order."""
    rows = [source.read() for source in scan.sources]
    return (
        np.concatenate([r.X for r in rows]),
        np.concatenate([r.y for r in rows]),
        np.concatenate([r.sizes for r in rows]),
    )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 30),
    largest=st.integers(1, 40),
    files=st.integers(1, 4),
    row_group=st.integers(1, 60),
    memory=st.sampled_from([0, 10**5, 10**9]),
)
def test_a_scan_reads_what_was_written(
    tmp_path_factory, seed, m, largest, files, row_group, memory
):
    tasks = history(np.random.default_rng(seed), m, sizes=(1, largest))
    folder = tmp_path_factory.mktemp("scan")
    write(folder, tasks, files=min(files, m), row_group=row_group)
    scan = mk.History.scan(folder, memory=memory)
    assert (scan.m, scan.total, scan.d0) == (tasks.m, tasks.total, 1)
    X, y, sizes = read_back(scan)
    assert_array_equal(X, np.concatenate([task.X for task in tasks]))
    assert_array_equal(y, np.concatenate([task.y for task in tasks]))
    assert_array_equal(sizes, tasks.sizes)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    files=st.integers(1, 4),
    shards=st.integers(1, 5),
    memory=st.sampled_from(["0 KB", "20 KB", "1 GB"]),
    loss=st.sampled_from(["points", "tasks"]),
)
def test_learning_from_a_scan_is_learning_from_memory(
    tmp_path_factory, seed, files, shards, memory, loss
):
    tasks = history(np.random.default_rng(seed), 15, sizes=(3, 40))
    folder = tmp_path_factory.mktemp("scan")
    write(folder, tasks, files=files)
    whole = as_problem(tasks, LEGENDRE, loss)
    lam = 0.1 * lambda_max(whole)
    scan = mk.History.scan(folder, memory=memory, shards=shards)
    found = solve(scan.as_problem(LEGENDRE, loss), lam, tol=1e-12)
    assert_allclose(found.eta, solve(whole, lam, tol=1e-12).eta, rtol=0, atol=1e-9)


def test_labels_may_be_words_dictionaries_or_folders(rng, tmp_path):
    tasks = history(rng, 4, sizes=(5, 9))
    names = np.repeat(["b", "a", "d", "c"], tasks.sizes)
    x = np.concatenate([task.X[:, 0] for task in tasks])
    y = np.concatenate([task.y for task in tasks])
    for kind in ("words", "dictionary"):
        label = pa.array(names) if kind == "words" else pa.array(names).dictionary_encode()
        file = tmp_path / f"{kind}.parquet"
        pq.write_table(pa.table({"name": label, "x": x, "auc": y}), file)
        scan = mk.History.scan(file, task="name", output="auc")
        assert_array_equal(scan.sizes, tasks.sizes)
    for s, task in enumerate(tasks):
        folder = tmp_path / "hive" / f"name={s}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": task.X[:, 0], "auc": task.y}), folder / "rows.parquet")
    scan = mk.History.scan(tmp_path / "hive", task="name", output="auc")
    assert_array_equal(read_back(scan)[1], y)


def test_rows_of_a_task_must_stand_together(tmp_path):
    for i in range(2):
        table = pa.table({"task": [7, 7, 8 + i], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]})
        pq.write_table(table, tmp_path / f"part-{i}.parquet")
    with pytest.raises(mk.InputError, match=r"part-1.parquet, row 0: task 7 .*part-0.parquet"):
        mk.History.scan(tmp_path)
    pq.write_table(
        pa.table({"task": [1, 2, 1], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]}),
        tmp_path / "alone.parquet",
    )
    with pytest.raises(mk.InputError, match=r"alone.parquet, row 2: task 1 has rows"):
        mk.History.scan(tmp_path / "alone.parquet")


def test_a_broken_file_is_named_and_can_be_left_out(rng, tmp_path, caplog):
    write(tmp_path, history(rng, 12))
    broken = tmp_path / "part-1.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(
        ShardError, match=r"part-1.parquet: its footer cannot be read: .*"
    ) as caught:
        mk.History.scan(tmp_path)
    assert "2 of 3 files can be read" in str(caught.value)
    with caplog.at_level(logging.WARNING, "metakel"):
        scan = mk.History.scan(tmp_path, on_error="skip")
    assert scan.m == 8
    assert "part-1.parquet" in caplog.text


def test_a_bad_value_is_named_by_file_row_and_reason(rng, tmp_path):
    write(tmp_path, history(rng, 12))
    file = tmp_path / "part-2.parquet"
    table = pq.read_table(file)
    for values, found in ((None, "nothing"), (np.inf, "inf")):
        y = table["y"].to_pylist()
        y[17] = values
        bad = table.set_column(2, "y", pa.array(y, pa.float64()))
        pq.write_table(bad, file, row_group_size=10)
        scan = mk.History.scan(tmp_path, shards=3)
        with pytest.raises(ShardError, match=f"part-2.parquet, row 17: column 'y' holds {found}"):
            mk.learn_kernel(scan, LEGENDRE, noise_std=0.1)


def test_after_a_broken_page_only_its_shard_is_read_again(rng, tmp_path):
    tasks = history(rng, 12)
    write(tmp_path, tasks)
    file = tmp_path / "part-1.parquet"
    good = file.read_bytes()
    start = pq.ParquetFile(file).metadata.row_group(1).column(2)
    offset = start.dictionary_page_offset or start.data_page_offset
    scan = mk.History.scan(tmp_path, shards=3)
    file.write_bytes(good[:offset] + b"\xff" * 40 + good[offset + 40 :])
    with pytest.raises(
        ShardError, match=r"part-1.parquet: rows 40 to \d+ cannot be read"
    ) as caught:
        mk.learn_kernel(scan, LEGENDRE, noise_std=0.1)
    assert "2 other shards answered and are kept" in str(caught.value)
    file.write_bytes(good)
    (tmp_path / "part-0.parquet").unlink()  # not needed any more
    learned = mk.learn_kernel(scan, LEGENDRE, noise_std=0.1)
    expected = mk.learn_kernel(tasks, LEGENDRE, noise_std=0.1)
    assert_allclose(learned.solution.eta, expected.solution.eta, rtol=1e-6)


def test_inputs_outside_the_domain_are_named_by_file(tmp_path):
    table = pa.table({"task": [1, 1, 2], "x": [0.1, 3.0, 0.3], "y": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "far.parquet")
    with pytest.raises(ShardError, match=r"far.parquet, rows 0 to 2: .*\[-1, 1\]"):
        mk.learn_kernel(mk.History.scan(tmp_path), LEGENDRE, noise_std=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "much"}, "memory is 'much'"),
        ({"output": "z"}, "z not found"),
        ({"inputs": ["x0", "w"]}, "w not found"),
        ({"workers": 2, "client": object()}, "both workers and client"),
    ],
)
def test_bad_arguments_say_what_was_found(rng, tmp_path, options, message):
    write(tmp_path, history(rng, 3))
    with pytest.raises(mk.InputError, match=message):
        mk.History.scan(tmp_path, **options)


def test_nothing_to_read_says_so(tmp_path):
    with pytest.raises(mk.InputError, match="does not exist"):
        mk.History.scan(tmp_path / "nowhere")
    with pytest.raises(mk.InputError, match=r"no \.parquet files"):
        mk.History.scan(tmp_path)


def test_a_file_replaced_after_the_scan_is_not_learned_from(rng, tmp_path):
    """The same rows, with the labels of the tasks shifted: nothing else would tell."""
    tasks = history(rng, 6, sizes=(8, 9))
    write(tmp_path, tasks, files=1)
    scanned = mk.History.scan(tmp_path)
    path = tmp_path / "part-0.parquet"
    table = pq.read_table(path)
    column = table.column("task").to_numpy()
    shifted = np.roll(column, 1)
    shifted[0] = column[0]
    pq.write_table(table.set_column(0, "task", pa.array(shifted)), path, row_group_size=40)
    with pytest.raises(ShardError, match=r"part-0\.parquet was replaced or changed since"):
        mk.learn_kernel(scanned, LEGENDRE, lam=0.1)
    assert mk.learn_kernel(mk.History.scan(tmp_path), LEGENDRE, lam=0.1).kernel is not None
