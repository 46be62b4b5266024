"""Files that unpack to gigabytes, devices, formulas, and cells that a spreadsheet would compute."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io import csv_columns, excel_columns, read_parquet
from metakel.scale import scan

WANTED = {"task": "task", "output": "y"}
TABLE = "task,x,y\na,1,2\nb,2,3\n"


@pytest.fixture
def bomb(tmp_path):
    """600 kB that unpack to 512 MB."""
    path = tmp_path / "bomb.csv.gz"
    block = gzip.compress(b"a,1,2\n" * (1 << 20), 9)
    path.write_bytes(gzip.compress(b"task,x,y\n") + block * 80)
    return path


def test_a_bomb_is_refused_without_filling_the_memory(bomb):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"bomb.csv.gz unpacks to more than \d+ MB"):
            History.from_csv(bomb, **WANTED)
        assert tracemalloc.get_traced_memory()[1] < 2 << 30
    finally:
        tracemalloc.stop()


def test_the_limit_can_be_raised(tmp_path, monkeypatch):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode() + b"b,2,3\n" * 100))
    monkeypatch.setattr("metakel._files.UNPACKED", 64)
    monkeypatch.setattr("metakel._files.UNPACKED_RATIO", 2)
    with pytest.raises(InputError, match="METAKEL_LARGEST_UNPACKED"):
        csv_columns(path)
    monkeypatch.setenv("METAKEL_LARGEST_UNPACKED", "4 GB")
    with pytest.raises(InputError, match="expected a number of bytes"):
        csv_columns(path)
    monkeypatch.setenv("METAKEL_LARGEST_UNPACKED", "100000")
    assert len(csv_columns(path)["y"]) == 102


def test_a_workbook_that_unpacks_to_gigabytes_is_refused(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "bomb.xlsx"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (70 << 20))
    with pytest.raises(InputError, match="unpacks to more than"):
        excel_columns(path)


def test_a_parquet_file_of_a_billion_equal_rows_is_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = pa.table({name: np.zeros(10**7) for name in ("task", "x", "y")})
    pq.write_table(rows, tmp_path / "bomb.parquet", compression="zstd")
    with pytest.raises(InputError, match="unpacks to more than"):
        read_parquet(tmp_path / "bomb.parquet", task="task", output="y")
    with pytest.raises(InputError, match="unpacks to more than"):
        scan(tmp_path / "bomb.parquet")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such devices here")
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full", "/"])
def test_a_device_is_not_read(name):
    with pytest.raises(InputError, match="expected a file"):
        History.from_csv(name, **WANTED)


PACKED = 3000
# Threads of Arrow give memory back after a read has returned: a pool that is gone by then crashes
# the process, whatever test it is in by that time.
POOLS = []


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ([[0.5] * PACKED] * PACKED, "column 'p' is list<.*expected numbers, text or dates"),
        (["x" * 10 * PACKED] * PACKED, "unpacks to more than 64 MB"),
    ],
)
def test_a_small_parquet_file_does_not_fill_the_memory(tmp_path, column, error):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"task": ["a"] * PACKED, "p": column, "score": [0.5] * PACKED}
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False)
    with pytest.raises(InputError, match=error):
        History.from_parquet(path, task="task", output="score")


@pytest.mark.parametrize("kind", ["binary", "large_binary", "fixed_size_binary"])
def test_columns_of_bytes_are_refused_before_they_are_read(tmp_path, kind):
    """Ten megabytes in every row take two kilobytes on disk."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    size, rows = 10_000_000, 20
    types = {"binary": pa.binary(), "large_binary": pa.large_binary()}
    blob = pa.array([b"x" * size] * rows, types.get(kind, pa.binary(size)))
    table = pa.table({"task": ["a"] * rows, "x": blob, "y": [float(i) for i in range(rows)]})
    pq.write_table(table, tmp_path / "blob.parquet", compression="zstd")
    for read in (
        lambda path: History.from_parquet(path, task="task", output="y"),
        lambda path: scan(path, task="x", inputs=["y"]),
    ):
        with pytest.raises(InputError, match=r"column 'x' is .*binary.*expected numbers"):
            read(tmp_path / "blob.parquet")


def test_a_long_text_that_is_repeated_is_read_once(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    numbers, path = list(range(PACKED)), tmp_path / "long.parquet"
    text = pa.DictionaryArray.from_arrays([i % 2 for i in numbers], ["x" * 10 * PACKED, "y"])
    columns = {"task": ["a", "b", "b"] * (PACKED // 3), "p": text, "score": numbers}
    pq.write_table(pa.table(columns), path, store_schema=False)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        found = History.from_parquet(path, task="task", output="score", inputs=["p"])
    finally:
        pa.set_memory_pool(before)
    assert set(found.space["p"].values) == {"x" * 10 * PACKED, "y"}
    assert pool.max_memory() < PACKED * 1000
