"""docs/promises.md: its numbers are those of the benchmark pages, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.docs import sections

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "promises.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """Cells of all lines of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def section(name: str) -> list[list[str]]:
    """Cells of the tables that a benchmark wrote."""
    return rows(sections()[name])


def after(title: str) -> str:
    """The part of the page below a heading, up to the next one."""
    return re.split(r"^#+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.M)[0]


def said(pattern: str) -> list[tuple[float, ...]]:
    """Numbers of every place of the page where a sentence stands, over line breaks."""
    text = " ".join(PAGE.split())
    found = [tuple(map(float, match.groups())) for match in re.finditer(pattern, text)]
    assert found, pattern
    return found


def test_coverage_after_learning_is_that_of_the_benchmark():
    measured = [
        cells for cells in section("selection") if " tasks" in cells[0] or "SNR" in cells[0]
    ]
    runs = re.search(r"coverage_selection --runs (\d+)", sections()["selection"])
    assert runs is not None
    default = [float(cells[1].split()[0]) for cells in measured]
    alone = [float(cells[6].split()[0]) for cells in measured]
    for low, high, count in said(r"nominal 0\.9: in (\.\d+) to (1\.00) of (\d+) runs"):
        assert (low, high) == (round(min(default), 2), round(max(default), 2))
        assert count == float(runs.group(1))
    for low, high in said(r"selection alone, `learned.kernel`: in (\.\d+) to (1\.00) of them"):
        assert (low, high) == (min(alone), max(alone))


def test_coverage_for_a_kernel_of_ones_own_is_that_of_the_benchmark():
    measured = {cells[0]: cells for cells in section("coverage")}
    assert measured["anytime coverage of the default, lowest of the four tables"][2] == "1"
    lowest = measured["anytime coverage of the default, lowest of the noise-dominated"][2]
    assert said(r"in (\.\d+) of the runs where noise dominates") == [(float(lowest),)]


def test_coverage_over_tasks_is_that_of_the_benchmark():
    table = [cells for cells in section("certificate") if len(cells) > 6][2:]
    shares = {
        delta: [round(float(cells[3].split()[0]), 2) for cells in table if cells[2] == delta]
        for delta in ("0.1", "0.2")
    }
    expected = tuple(v for values in shares.values() for v in (min(values), max(values)))
    pattern = r"(\.\d+) to (\.\d+) of them at delta 0\.1, (\.\d+) to (\.\d+) at delta 0\.2"
    assert set(said(pattern)) == {expected}
    assert min(int(cells[3].rpartition(" ")[2]) for cells in table) >= 200
    (tables,) = set(said(r"on (\d+) tables"))
    assert tables == (len({cells[0] for cells in table}),)


def test_coverage_on_spaces_is_that_of_the_benchmark():
    table = [cells for cells in section("spaces") if len(cells) == 9][2:]
    shares = [float(cells[5].split()[0]) for cells in table]
    assert set(said(r"in (\d+) lines .*?, true in (\.\d+) to (1\.00|\.\d+)")) == {
        (len(table), min(shares), max(shares))
    }


def test_the_alarm_hears_what_the_benchmark_says():
    table = section("alarm")[2:]
    heard = {(noise, points): cells for noise, points, *cells in table}
    pairs = said(
        r"in (\.\d+) and (\.\d+) of 50 runs \(noise 0\.1 and 0\.02\), "
        r"with 4 probes in (\.\d+) and (\.\d+)"
    )
    names = ("GP-UCB", "GP-UCB, 4 probes, neighbours")
    found = [float(heard[noise, name][0].split()[0]) for name in names for noise in ("0.1", "0.02")]
    assert pairs == [tuple(found)]
    assert all(heard[n, "GP-UCB, 8 probes"][0].startswith("1.00") for n in ("0.1", "0.02"))
    false = [cells[3].split(" of ") for cells in heard.values()]
    assert {hits for hits, _ in false} == {"0"}
    assert said(r"No alarm was false in (\d+) runs") == [(sum(int(n) for _, n in false),)]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`python -m (benchmarks\.\w+)", PAGE))))
def test_commands_exist(command):
    assert (DOCS.parent / f"{command.replace('.', '/')}.py").exists()


def test_how_often_the_best_run_is_stopped_is_that_of_the_benchmark():
    pattern = r"in (\.\d+) to (\.\d+) of them at delta 0.05, and in (\.\d+) to (\.\d+) at delta 0.2"
    measured = [
        [float(cells[3]) for cells in section("curves") if cells[1] == pruner]
        for pruner in ("metakel, delta 0.05", "metakel, delta 0.2")
    ]
    for numbers in said(pattern):
        assert numbers == tuple(end for found in measured for end in (min(found), max(found)))
