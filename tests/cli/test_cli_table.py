"""``metakel suggest --table``: one file that people fill in."""

from __future__ import annotations

import csv
import json

import pytest
from strangers_table import OUTPUT


def rows_of(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_twelve_experiments_with_one_file_and_one_command(metakel, prior, tmp_path):
    path, known = tmp_path / "runs.csv", set()
    for _ in range(3):
        found = metakel("suggest", prior, "--table", path, "-n", 4)
        assert found.code == 0, found.err
        assert "fill in" in found.err
        rows = rows_of(path)
        text = path.read_text(encoding="utf-8-sig").splitlines()
        known |= {line.rstrip(",") for line in text[-4:]}
        for k, row in enumerate(rows[-4:]):
            row[OUTPUT] = 50 + k
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    assert len(rows) == len(known) == 12
    found = metakel("suggest", prior, "--table", path, "--json")
    (answer,) = json.loads(found.out)
    assert answer["place"] == "line 14 of runs.csv"
    assert answer["number"] == 12


@pytest.mark.parametrize("option", ["--journal", "--observed"])
def test_the_table_is_the_only_record(metakel, prior, option):
    found = metakel("suggest", prior, "--table", "runs.csv", option, "other.csv")
    assert found.code == 2
    assert "the table is the record" in found.err


def test_a_sheet_needs_a_table(metakel, prior):
    found = metakel("suggest", prior, "--sheet", "runs")
    assert found.code == 2
    assert "--sheet without --table" in found.err
