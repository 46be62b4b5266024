"""Kill a tuning process again and again and compare what is left with an undisturbed run.

``python tests/tuner/torture.py --kills 100`` kills forks of itself while they tune; with
``--command`` it kills ``metakel tune`` as a person would run it. Prints one JSON line.

Every third kill comes in the middle of an evaluation, whatever the load of the machine: the killer
puts up a stop sign, and an evaluation that sees it says so and never ends. The other kills come at
a random moment after some confirmed values.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from torture_program import EVALUATING, STOP, stop_if_told
from tuning_history import measure, small_prior

from metakel.tuner import Journal, Tuner

BUDGET = 25
CONFIRMED_FIRST = (0, 1, 2, 4)
PROGRAM = Path(__file__).with_name("torture_program.py").resolve()


@dataclass
class Count:
    kills: int = 0
    in_evaluations: int = 0
    lives: int = 0
    runs: int = 0
    confirmed: int = 0
    lost: int = 0
    unreadable: int = 0
    torn: int = 0
    repeated: int = 0
    different: list[int] = field(default_factory=list)


@dataclass
class Killer:
    """When the next process is killed."""

    folder: Path
    confirmed_first: int
    in_evaluation: bool
    delay: float

    def wait_and_kill(self, child: int, reader: int) -> list[str]:
        """Lines that the process wrote before it was killed, or ended."""
        said, ended = b"", False
        while said.count(b"\n") < self.confirmed_first and not ended:
            part = os.read(reader, 1 << 16)
            said, ended = said + part, not part
        if self.in_evaluation:
            (self.folder / STOP).touch()
            while not (ended or (self.folder / EVALUATING).exists()):
                if select.select([reader], [], [], 0.005)[0]:
                    part = os.read(reader, 1 << 16)
                    said, ended = said + part, not part
        else:
            time.sleep(self.delay)
        os.kill(child, signal.SIGKILL)
        while part := os.read(reader, 1 << 16):
            said += part
        os.close(reader)
        for sign in (STOP, EVALUATING):
            (self.folder / sign).unlink(missing_ok=True)
        return said.decode().split("\n")[:-1]


def tune_until_killed(path: Path, seed: int, confirm: int) -> None:
    tuner = Tuner(small_prior(), path, budget=BUDGET, seed=seed)
    for x in tuner:
        stop_if_told(path.parent)
        value = measure(x)
        tuner.tell(x, value)
        os.write(confirm, f"{json.dumps([x, value])}\n".encode())


def fork_life(path: Path, seed: int, killer: Killer) -> tuple[list[str], bool]:
    """Values that were confirmed, and whether the process was killed at work."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        tune_until_killed(path, seed, writer)
        os._exit(0)
    os.close(writer)
    lines = killer.wait_and_kill(child, reader)
    _, status = os.waitpid(child, 0)
    return lines, os.WIFSIGNALED(status)


def command_line(folder: Path, path: Path, seed: int) -> list[str]:
    small_prior().save(folder / "prior.json")
    options = ["--journal", str(path), "--budget", str(BUDGET), "--seed", str(seed), "--json"]
    tune = [sys.executable, "-m", "metakel", "tune", str(folder / "prior.json")]
    return [*tune, *options, "--", sys.executable, str(PROGRAM), str(folder)]


def command_life(command: list[str], killer: Killer) -> tuple[list[str], bool]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    lines = killer.wait_and_kill(child.pid, os.dup(child.stdout.fileno()))
    child.stdout.close()
    child.wait()
    events = [json.loads(line) for line in lines]
    values = [e for e in events if e["event"] == "complete"]
    kept = [json.dumps([e["configuration"], e["value"]]) for e in values]
    return kept, child.returncode == -signal.SIGKILL


def values_in(path: Path) -> list[str]:
    events = Journal(path).read()
    return [json.dumps([e["configuration"], e["value"]]) for e in events if e["event"] == "told"]


def torture(kills: int, seed: int, *, command: bool) -> Count:
    count, moments = Count(), random.Random(seed)
    while count.kills < kills:
        count.runs += 1
        with TemporaryDirectory() as name:
            path, whole = Path(name) / "run.jsonl", Path(name) / "whole.jsonl"
            one_run(count, kills, moments, path, command=command)
            # Whatever the kills left undone is finished, then compared.
            if command:
                for each in (path, whole):
                    subprocess.run(
                        command_line(Path(name), each, count.runs), check=True, capture_output=True
                    )
            else:
                for each in (path, whole):
                    tuner = Tuner(small_prior(), each, budget=BUDGET, seed=count.runs)
                    for x in tuner:
                        tuner.tell(x, measure(x))
            count.repeated += len([e for e in Journal(path).read() if e["event"] == "adopted"])
            if values_in(path) != values_in(whole):
                count.different.append(count.runs)
    return count


def one_run(count: Count, kills: int, moments: random.Random, path: Path, *, command: bool) -> None:
    confirmed: list[str] = []
    while count.kills < kills:
        count.lives += 1
        killer = Killer(
            path.parent,
            confirmed_first=CONFIRMED_FIRST[count.kills % len(CONFIRMED_FIRST)],
            in_evaluation=count.kills % 3 == 0,
            delay=moments.expovariate(1 / 0.03),
        )
        if command:
            start = command_line(path.parent, path, count.runs)
            new, killed = command_life(start, killer)
        else:
            new, killed = fork_life(path, count.runs, killer)
        count.kills += killed
        count.in_evaluations += killed and killer.in_evaluation
        confirmed += new
        count.confirmed += len(new)
        if path.exists():
            count.torn += not path.read_bytes().endswith(b"\n")
        try:
            kept = values_in(path)
        except ValueError:
            count.unreadable += 1
            return
        count.lost += len([line for line in confirmed if line not in kept])
        if not killed:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", action="store_true", help="kill `metakel tune`")
    chosen = parser.parse_args()
    small_prior()
    count = torture(chosen.kills, chosen.seed, command=chosen.command)
    sys.stdout.write(json.dumps(vars(count)) + "\n")
    if count.lost or count.unreadable or count.different:
        sys.exit(1)


if __name__ == "__main__":
    main()
