"""One journal, one task: another command or another name is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

CODE = "import sys; print('acc:', 90 - (int(sys.argv[1]) - 4) ** 2)"


def on(data: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", CODE, "{n=layers}", data)


def told(path: str = "metakel-run.jsonl") -> int:
    lines = map(json.loads, Path(path).read_text().splitlines())
    return sum(line["event"] == "told" for line in lines)


def test_the_next_data_set_in_the_same_folder_does_not_go_on_with_the_journal(metakel, prior):
    assert metakel("tune", prior, "--budget", 1, *on("first.csv")).code == 0
    refused = metakel("tune", prior, "--budget", 3, *on("second.csv"))
    assert refused.code == 1
    for part in ("metakel-run.jsonl", "first.csv", "second.csv", "--journal PATH", "--same-task"):
        assert part in refused.err
    assert "the command ... first.csv ..., and this run has the command ... second.csv ..." in (
        refused.err
    )
    assert told() == 1


def test_both_ways_out_work(metakel, prior):
    metakel("tune", prior, "--budget", 1, *on("first.csv"))
    same = metakel("tune", prior, "--budget", 2, "--same-task", *on("moved/first.csv"))
    assert (same.code, told()) == (0, 2)
    own = metakel("tune", prior, "--budget", 1, "--journal", "second.jsonl", *on("second.csv"))
    assert (own.code, told("second.jsonl")) == (0, 1)


@pytest.mark.parametrize("command", ["tune", "suggest"])
def test_a_name_tells_tasks_apart_whose_command_is_the_same(metakel, prior, command):
    words = {"tune": ("--budget", 1, *on("data.csv")), "suggest": ()}[command]
    journal = ("--journal", "run.jsonl")
    assert metakel(command, prior, *journal, "--task", "june", *words).code == 0
    refused = metakel(command, prior, *journal, "--task", "july", *words)
    assert refused.code == 1
    assert "task 'june'" in refused.err
    assert "--same-task" in refused.err


def test_a_journal_without_a_command_takes_any(metakel, prior):
    """As those of earlier versions, and those that a person began by `metakel suggest`."""
    metakel("suggest", prior, "--journal", "metakel-run.jsonl")
    assert metakel("tune", prior, "--budget", 2, *on("any.csv")).code == 0
