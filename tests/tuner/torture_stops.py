"""Kill `metakel tune` by SIGKILL, SIGTERM and SIGINT while it ends its program by the curve rule.

``python tests/tuner/torture_stops.py --kills 200`` prints one JSON line. After every kill the
journal is readable, every value and every stop that was printed is in it, and neither the program
nor a child of it is there any more. Every second kill comes once the program was asked to end, the
others at a random moment after it was started.
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

from torture_stops_program import ASKED, STARTED, STEPS
from tuning_history import past_curves, small_prior

from metakel.tuner import Store, Tuner
from metakel.tuner.lock import start_of

PROGRAM = Path(__file__).with_name("torture_stops_program.py").resolve()
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS_OF_A_JOURNAL = 25
PATIENCE = 60.0  # of a busy machine, for processes that were killed


@dataclass
class Count:
    kills: int = 0
    by: dict[str, int] = field(default_factory=dict)
    while_ending: int = 0
    confirmed: int = 0
    lost: int = 0
    unreadable: int = 0
    left: int = 0  # processes that go on


def begin(folder: Path) -> list[str]:
    """A journal with six runs to compare with; gives the command that goes on with it."""
    small_prior().save(folder / "prior.json")
    past_curves(STEPS).save(folder / "curves.json")
    tuner = Tuner(small_prior(), folder / "run.jsonl", budget=6)
    for number, x in enumerate(tuner):
        level = 0.3 * number
        tuner.tell(x, level, curve={e + 1: level - 2.0**-e for e in range(STEPS)})
    options = ["--journal", str(folder / "run.jsonl"), "--budget", "1000", "--json", "--same-task"]
    options += ["--step-pattern", "epoch={step} val={value}"]
    options += ["--curves", str(folder / "curves.json")]
    tune = [sys.executable, "-m", "metakel", "tune", str(folder / "prior.json"), *options]
    return [*tune, "--", sys.executable, str(PROGRAM), str(folder)]


def usual_signals() -> None:
    """As from a terminal, also where this runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pids(file: Path) -> list[int]:
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return [int(line) for line in lines]


def killed(command: list[str], folder: Path, sign: int, delay: float, *, ending: bool) -> str:
    """What `metakel tune` printed before it was killed."""
    for name in (STARTED, ASKED):
        (folder / name).unlink(missing_ok=True)
    with (folder / "printed").open("w+b") as printed:
        tune = subprocess.Popen(
            command, stdout=printed, stderr=subprocess.DEVNULL, preexec_fn=usual_signals
        )
        while not (pids(folder / (ASKED if ending else STARTED)) or tune.poll() is not None):
            time.sleep(0.005)
        time.sleep(delay)
        tune.send_signal(sign)
        tune.wait()
        return os.pread(printed.fileno(), 1 << 24, 0).decode()


def is_there(pid: int) -> bool:
    end = time.monotonic() + PATIENCE
    while start_of(pid):
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def results(path: Path) -> list[object]:
    record = Store.open(path).run.record
    return [(t.number, t.value, [*t.note.curve.items()]) for t in record if t.state != "pending"]


def torture(kills: int, seed: int) -> Count:
    count, moments = Count(), random.Random(seed)
    while count.kills < kills:
        with TemporaryDirectory() as name:
            folder, confirmed = Path(name), list[object]()
            command = begin(folder)
            for _ in range(min(KILLS_OF_A_JOURNAL, kills - count.kills)):
                sign, ending = SIGNALS[count.kills % len(SIGNALS)], count.kills % 2 == 0
                delay = moments.uniform(0, 0.1) if ending else moments.expovariate(1 / 0.3)
                printed = killed(command, folder, sign, delay, ending=ending)
                count.kills += 1
                count.by[sign.name] = count.by.get(sign.name, 0) + 1
                count.while_ending += ending
                for line in printed.split("\n")[:-1]:
                    told = json.loads(line)
                    if told["event"] in ("complete", "stopped"):
                        steps = [(int(step), value) for step, value in told["curve"].items()]
                        confirmed.append((told["number"], told["value"], steps))
                        count.confirmed += 1
                try:
                    kept = results(folder / "run.jsonl")
                except ValueError:
                    count.unreadable += 1
                    break
                count.lost += len([one for one in confirmed if one not in kept])
                count.left += sum(map(is_there, pids(folder / STARTED)))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    count = torture(chosen.kills, chosen.seed)
    sys.stdout.write(json.dumps(vars(count)) + "\n")
    if count.lost or count.unreadable or count.left:
        sys.exit(1)


if __name__ == "__main__":
    main()
