"""Kill a tuning process again and again and compare what is left with an undisturbed run.

``python tests/tuner/torture.py --kills 100`` kills forks of itself while they tune; with
``--command`` it kills ``metakel tune`` as a person would run it. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tuning_history import measure, small_prior

from metakel.tuner import Journal, Tuner

BUDGET = 25
OBJECTIVE = (
    "import sys; rate, depth, kind = sys.argv[1:]; "
    "print(0.9 - (float(rate) - 0.01) ** 2 - 0.01 * (int(depth) - 6) ** 2 - 0.1 * (kind != 'adam'))"
)


@dataclass
class Count:
    kills: int = 0
    lives: int = 0
    runs: int = 0
    confirmed: int = 0
    lost: int = 0
    unreadable: int = 0
    torn: int = 0
    repeated: int = 0
    different: list[int] = field(default_factory=list)


def tune_until_killed(path: Path, seed: int, confirm: int) -> None:
    tuner = Tuner(small_prior(), path, budget=BUDGET, seed=seed)
    for x in tuner:
        value = measure(x)
        time.sleep(0.03)  # an evaluation takes time, so that some kills come in the middle of it
        tuner.tell(x, value)
        os.write(confirm, f"{json.dumps([x, value])}\n".encode())


def fork_life(path: Path, seed: int, moments: random.Random) -> tuple[list[str], bool]:
    """Values that were confirmed, and whether the process was killed at work.

    The kill comes at a random moment after a random number of confirmations, so that a busy
    machine does not move all kills to the beginning.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        tune_until_killed(path, seed, writer)
        os._exit(0)
    os.close(writer)
    lines = wait_and_kill(child, reader, moments)
    _, status = os.waitpid(child, 0)
    return lines, os.WIFSIGNALED(status)


def wait_and_kill(child: int, reader: int, moments: random.Random) -> list[str]:
    said, wanted = b"", moments.choice((0, 0, 1, 2, 4))
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while said.count(b"\n") < wanted and (part := stream.read(1 << 16)):
            said += part
        time.sleep(moments.expovariate(1 / 0.03))
        os.kill(child, signal.SIGKILL)
        while part := stream.read(1 << 16):
            said += part
    return said.decode().split("\n")[:-1]


def command_line(folder: Path, path: Path, seed: int) -> list[str]:
    small_prior().save(folder / "prior.json")
    options = ["--journal", str(path), "--budget", str(BUDGET), "--seed", str(seed), "--json"]
    run = [sys.executable, "-c", OBJECTIVE, "{rate}", "{depth}", "{kind}"]
    return [
        sys.executable,
        "-m",
        "metakel",
        "tune",
        str(folder / "prior.json"),
        *options,
        "--",
        *run,
    ]


def command_life(command: list[str], moments: random.Random) -> tuple[list[str], bool]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    lines = wait_and_kill(child.pid, os.dup(child.stdout.fileno()), moments)
    child.stdout.close()
    child.wait()
    events = [json.loads(line) for line in lines]
    told = [json.dumps([e["configuration"], e["value"]]) for e in events if e["event"] == "told"]
    return told, child.returncode == -signal.SIGKILL


def told(path: Path) -> list[str]:
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
            if told(path) != told(whole):
                count.different.append(count.runs)
    return count


def one_run(count: Count, kills: int, moments: random.Random, path: Path, *, command: bool) -> None:
    confirmed: list[str] = []
    while count.kills < kills:
        count.lives += 1
        if command:
            start = command_line(path.parent, path, count.runs)
            new, killed = command_life(start, moments)
        else:
            new, killed = fork_life(path, count.runs, moments)
        count.kills += killed
        confirmed += new
        count.confirmed += len(new)
        if path.exists():
            count.torn += not path.read_bytes().endswith(b"\n")
        try:
            kept = told(path)
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
