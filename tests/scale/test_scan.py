"""A scan of Parquet files is the history they hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from stored_histories import LEGENDRE, PAIRS, history, write

import metakel as mk
from metakel.errors import InputError
from metakel.grouplasso import lambda_max, path, solve
from metakel.learn import as_problem
from metakel.learn.problem import least_squares
from metakel.scale import scan

SLOW_FIXTURE = [HealthCheck.function_scoped_fixture]


def read_back(found, rows):
    """All rows of a scan in its order, read in pieces of so many."""
    parts = [
        file.read(start, int(file.sizes[tasks].sum()))
        for file in found.files
        for tasks, start in file.pieces(rows)
    ]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW_FIXTURE)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 30),
    largest=st.integers(1, 40),
    files=st.integers(1, 4),
    row_group=st.integers(1, 60),
    rows=st.sampled_from([1, 25, 10**6]),
)
def test_a_scan_reads_what_was_written(tmp_path_factory, seed, m, largest, files, row_group, rows):
    tasks = history(np.random.default_rng(seed), m, sizes=(1, largest))
    folder = tmp_path_factory.mktemp("scan")
    write(folder, tasks, files=min(files, m), row_group=row_group)
    found = scan(folder)
    assert (found.m, found.total, found.d0) == (tasks.m, tasks.total, 1)
    X, y = read_back(found, rows)
    assert_array_equal(X, np.concatenate([task.X for task in tasks]))
    assert_array_equal(y, np.concatenate([task.y for task in tasks]))
    assert_array_equal(found.sizes, tasks.sizes)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    files=st.integers(1, 4),
    largest=st.integers(3, 40),
    base=st.sampled_from([LEGENDRE, PAIRS]),
)
def test_factors_hold_all_that_eq_8_asks_of_a_task(tmp_path_factory, seed, files, largest, base):
    tasks = history(np.random.default_rng(seed), 15, sizes=(1, largest))
    folder = tmp_path_factory.mktemp("scan")
    write(folder, tasks, files=files)
    whole, stored = as_problem(tasks, base), scan(folder / "*.parquet", base).as_problem()
    assert_allclose(stored.energy, whole.energy)
    assert_allclose(stored.group_scores(), whole.group_scores())
    for one, other in zip(stored.spectra(), whole.spectra(), strict=True):
        assert_allclose(np.sort(one)[:, -1], np.sort(other)[:, -1], atol=1e-9)
    few = np.array([1, 4])  # of which every rank is clear
    fits = [least_squares(problem, few) for problem in (stored, whole)]
    assert_allclose(fits[0].rss, fits[1].rss, rtol=1e-6)
    assert fits[0].free == fits[1].free
    lam = 0.1 * lambda_max(whole)
    found, expected = (solve(problem, lam, tol=1e-12) for problem in (stored, whole))
    assert_allclose(found.eta, expected.eta, rtol=0, atol=1e-9)
    assert_allclose(found.objective, expected.objective)
    assert_allclose(found.loss, expected.loss)
    assert found.gap <= 1e-12
    assert found.kkt <= 1e-5
    assert found.unique == expected.unique


def test_learning_updates_and_paths_are_those_of_memory(rng, tmp_path):
    tasks = history(rng, 30)
    write(tmp_path / "old", mk.History(tasks.tasks[:20]))
    write(tmp_path / "new", mk.History(tasks.tasks[20:]), first=20)
    options = {"noise_std": 0.1, "tol": 1e-12}
    whole = mk.learn_kernel(tasks, LEGENDRE, **options)
    old = mk.learn_kernel(scan(tmp_path / "old", LEGENDRE, folder=tmp_path / "kept"), **options)
    both = old.update(scan(tmp_path / "new", mk.kernels.legendre(10, scaling="l2")))
    assert both.history.m == 30
    assert_allclose(both.lam, whole.lam, rtol=1e-12)
    assert_allclose(both.solution.eta, whole.solution.eta, atol=1e-9)
    assert both.report() != ""
    unknown = mk.learn_kernel(scan([tmp_path / "old", tmp_path / "new"], LEGENDRE))
    assert_allclose(unknown.noise_std, mk.learn_kernel(tasks, LEGENDRE).noise_std, rtol=1e-9)
    paths = [path(problem, count=5, tol=1e-12) for problem in (both.problem, whole.problem)]
    etas = [[solution.eta for solution in solutions] for solutions in paths]
    assert_allclose(etas[0], etas[1], atol=1e-7)
    for call, message in (
        (lambda: both.update(scan(tmp_path / "new", LEGENDRE)), "has rows at .*count once"),
        (lambda: old.update(tasks), "expected a scan"),
        (lambda: old.update(scan(tmp_path / "new", PAIRS)), "other base kernels"),
        (lambda: mk.learn_kernel(old.history, PAIRS), "base kernels of their scan"),
        (lambda: mk.learn_kernel(old.history, loss="tasks"), "expected 'points'"),
        (lambda: mk.learn_kernel(old.history, lam="monte-carlo", noise_std=0.1, rng=rng), "disk"),
        (lambda: old.screening(), "on disk"),
        (lambda: old.solution.residuals, "on disk"),
        (lambda: mk.learn_kernel(scan(tmp_path / "old")), "base kernels of their scan"),
        (lambda: scan(tmp_path / "old", mk.kernels.matern(2.5, 1.0)), "without features"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_labels_may_be_words_dictionaries_or_folders(rng, tmp_path):
    tasks = history(rng, 4, sizes=(5, 9))
    names = np.repeat(["b", "a", "d", "c"], tasks.sizes)
    x = np.concatenate([task.X[:, 0] for task in tasks])
    y = np.concatenate([task.y for task in tasks])
    for kind in ("words", "dictionary"):
        label = pa.array(names) if kind == "words" else pa.array(names).dictionary_encode()
        file = tmp_path / f"{kind}.parquet"
        pq.write_table(pa.table({"name": label, "x": x, "auc": y}), file, row_group_size=7)
        found = scan(file, task="name", output="auc")
        assert_array_equal(found.sizes, tasks.sizes)
        assert found.files[0].labels == ("b", "a", "d", "c")
    for s, task in enumerate(tasks):
        folder = tmp_path / "hive" / f"name={s}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": task.X[:, 0], "auc": task.y}), folder / "rows.parquet")
    assert_array_equal(read_back(scan(tmp_path / "hive", task="name", output="auc"), 100)[1], y)


def test_rows_of_a_task_must_stand_together(tmp_path):
    for i in range(2):
        table = pa.table({"task": [7, 7, 8 + i], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]})
        pq.write_table(table, tmp_path / f"part-{i}.parquet")
    with pytest.raises(InputError, match=r"part-1.parquet, row 0: task 7 .*part-0.parquet"):
        scan(tmp_path)
    pq.write_table(
        pa.table({"task": [1, 2, 1], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]}),
        tmp_path / "alone.parquet",
    )
    with pytest.raises(InputError, match=r"alone.parquet, row 2: task 1 has rows"):
        scan(tmp_path / "alone.parquet")


def test_a_broken_file_is_named(rng, tmp_path):
    write(tmp_path, history(rng, 12))
    broken = tmp_path / "part-1.parquet"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:100])
    with pytest.raises(InputError, match=r"part-1.parquet: its footer cannot be read: .*"):
        scan(tmp_path)
    start = pq.ParquetFile(tmp_path / "part-0.parquet").metadata.row_group(1).column(2)
    offset = start.dictionary_page_offset or start.data_page_offset
    broken.write_bytes(whole)
    first = tmp_path / "part-0.parquet"
    good = first.read_bytes()
    first.write_bytes(good[:offset] + b"\xff" * 40 + good[offset + 40 :])
    with pytest.raises(InputError, match=r"part-0.parquet: rows 40 to \d+ cannot be read"):
        scan(tmp_path, LEGENDRE)


def test_a_bad_value_is_named_by_file_row_and_reason(rng, tmp_path):
    write(tmp_path, history(rng, 12))
    file = tmp_path / "part-2.parquet"
    table = pq.read_table(file)
    for values, found in ((None, "nothing"), (np.inf, "inf")):
        y = table["y"].to_pylist()
        y[17] = values
        bad = table.set_column(2, "y", pa.array(y, pa.float64()))
        pq.write_table(bad, file, row_group_size=10)
        with pytest.raises(InputError, match=f"part-2.parquet, row 17: column 'y' holds {found}"):
            scan(tmp_path, LEGENDRE)


def test_inputs_outside_the_domain_are_named_by_file(tmp_path):
    table = pa.table({"task": [1, 1, 2], "x": [0.1, 3.0, 0.3], "y": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "far.parquet")
    with pytest.raises(InputError, match=r"far.parquet, rows 0 to 2: .*\[-1, 1\]"):
        scan(tmp_path, LEGENDRE)


def test_nested_columns_and_long_labels_fill_no_memory(tmp_path):
    nested = pa.table({"task": [1, 1], "x": [[0.1], [0.2]], "y": [1.0, 2.0]})
    pq.write_table(nested, tmp_path / "nested.parquet")
    with pytest.raises(InputError, match=r"column 'x' is list<.*expected numbers"):
        scan(tmp_path / "nested.parquet", inputs=["x"])
    label = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int8), ["a" * 10**5])
    zeros = np.zeros(10**5)
    pq.write_table(pa.table({"task": label, "x": zeros, "y": zeros}), tmp_path / "long.parquet")
    assert scan(tmp_path / "long.parquet").m == 1  # 10 GB if every row had its own


@pytest.mark.parametrize(
    ("options", "message"), [({"output": "z"}, "z not found"), ({"inputs": ["x0", "w"]}, "w not")]
)
def test_bad_arguments_say_what_was_found(rng, tmp_path, options, message):
    write(tmp_path, history(rng, 3))
    with pytest.raises(InputError, match=message):
        scan(tmp_path, **options)


def test_nothing_to_read_says_so(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        scan(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no \.parquet files"):
        scan(tmp_path)
    with pytest.raises(InputError, match="no file matches"):
        scan(tmp_path / "*.parquet")
