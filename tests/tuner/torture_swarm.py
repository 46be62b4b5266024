"""Harder than one process at a time: several on a journal, full disks, and kills while saving.

``python tests/tuner/torture_swarm.py swarm --kills 1000 --processes 4`` kills one of several
processes that share a journal, again and again; with ``--hosts 3`` they seem to run in containers
of other hosts, whose evaluations are asked again after a lease. ``saving`` kills a process that
replaces a file; ``disk`` lets the disk be full after every number of bytes; ``pauses`` stops
processes for longer than their lease, on hosts whose clocks differ by hours; ``signals`` interrupts
a process that goes on; ``damage`` flips a bit or cuts the journal at every ``--step``-th place.
Each prints one JSON line and exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torture import values_in
from tuning_history import measure, small_prior

from metakel import MetaKelError, Prior
from metakel.tuner import Journal, Tuner, fold, lock, store
from metakel.tuner.salvage import salvaged

BUDGET = 40
LEASE = 0.3
WAYS = ("swarm", "saving", "disk", "pauses", "signals", "damage")


@dataclass
class Child:
    """A process that writes a line for everything that was confirmed to it."""

    pid: int
    reader: int
    lines: list[str] = field(default_factory=list)
    _rest: bytes = b""

    @classmethod
    def start(cls, work: Callable[[int], None]) -> Child:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            work(writer)
            os._exit(0)
        os.close(writer)
        return cls(pid, reader)

    def listen(self) -> bool:
        """Take in what there is; False at the end."""
        part = os.read(self.reader, 1 << 16)
        *lines, self._rest = (self._rest + part).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(part)

    def end(self, *, kill: bool) -> bool:
        """Wait for the end; whether it was killed before."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        while self.listen():
            pass
        os.close(self.reader)
        return os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])


def skewed(seconds: float) -> type[datetime]:
    """A clock that is ahead of all others."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Clock


def tune(
    path: Path, seed: int, host: int | None, confirm: int, ahead: float = 0.0, slow: float = 0.0
) -> None:
    """Evaluate until the budget is spent."""
    if ahead:
        store.datetime = fold.datetime = skewed(ahead)
    if host is not None:
        here = {**lock._place(), "host": f"pod-{host}", "namespace": f"pid:[{os.getpid()}]"}
        lock._place = lambda: here
    lease = None if host is None else LEASE
    tuner = Tuner(small_prior(), path, budget=BUDGET, seed=seed, adopt_after=lease)
    for x in tuner:
        time.sleep(slow)
        value = measure(x)
        tuner.tell(x, value)
        os.write(confirm, f"{json.dumps([x, value])}\n".encode())


def swarm(kills: int, processes: int, hosts: int, seed: int) -> dict[str, int]:
    """Kill one of several processes at random moments, and start another."""
    moments = random.Random(seed)
    count = dict.fromkeys(("kills", "runs", "confirmed", "lost", "unreadable", "unfinished"), 0)
    while count["kills"] < kills:
        count["runs"] += 1
        with TemporaryDirectory() as name:
            path = Path(name) / "run.jsonl"
            confirmed = _one_run(path, count, kills, processes, hosts, moments)
            try:
                kept = values_in(path)
                trials = Tuner(small_prior(), path, seed=count["runs"]).run
            except (MetaKelError, ValueError):
                count["unreadable"] += 1
                continue
            count["confirmed"] += len(confirmed)
            count["lost"] += sum(line not in kept for line in confirmed)
            count["unfinished"] += trials.spent != BUDGET or len(trials.record.pending) > 0
    return count


def _one_run(
    path: Path,
    count: dict[str, int],
    kills: int,
    processes: int,
    hosts: int,
    moments: random.Random,
) -> list[str]:
    confirmed: list[str] = []
    seed = count["runs"]

    def start(i: int) -> Child:
        host = i % hosts if hosts else None
        return Child.start(lambda writer: tune(path, seed, host, writer))

    alive, started = [start(i) for i in range(processes)], processes
    end = time.monotonic() + moments.expovariate(1 / 0.05)
    while alive:
        wait = max(end - time.monotonic(), 0)
        ready = select.select([child.reader for child in alive], [], [], wait)[0]
        for child in [c for c in alive if c.reader in ready]:
            if not child.listen():
                child.end(kill=False)
                confirmed += child.lines
                alive.remove(child)
        if time.monotonic() >= end and alive and count["kills"] < kills:
            victim = moments.choice(alive)
            alive.remove(victim)
            count["kills"] += victim.end(kill=True)
            confirmed += victim.lines
            alive.append(start(started))
            started += 1
            end = time.monotonic() + moments.expovariate(1 / 0.05)
        elif count["kills"] >= kills:
            end = time.monotonic() + 1.0
    # Whatever the last kill left is finished, by a process that waits for leases to end.
    time.sleep(LEASE if hosts else 0)
    last = start(started)
    last.end(kill=False)
    return confirmed + last.lines


def pauses(count: int, processes: int, seed: int) -> dict[str, int]:
    """Stop processes of other hosts for longer than their lease, while their clocks differ."""
    moments = random.Random(seed)
    found = dict.fromkeys(("pauses", "runs", "confirmed", "second", "lost", "unfinished"), 0)
    while found["pauses"] < count:
        found["runs"] += 1
        with TemporaryDirectory() as name:
            path, run = Path(name) / "run.jsonl", found["runs"]
            hours = [moments.choice([0.0, -7200.0, 7200.0]) for _ in range(processes)]
            alive = [
                Child.start(lambda w, i=i, h=h, p=path, n=run: tune(p, n, i, w, h, 0.03))
                for i, h in enumerate(hours)
            ]
            for victim in moments.sample(alive, processes - 1):
                time.sleep(moments.expovariate(1 / 0.05))
                os.kill(victim.pid, signal.SIGSTOP)
                time.sleep(1.5 * LEASE)
                os.kill(victim.pid, signal.SIGCONT)
                found["pauses"] += 1
            for child in alive:
                child.end(kill=False)
            confirmed, kept = [line for child in alive for line in child.lines], values_in(path)
            record = Tuner(small_prior(), path, seed=run).run
            found["confirmed"] += len(confirmed)
            found["second"] += len(record.record.observed) - BUDGET
            found["lost"] += sum(confirmed.count(line) > kept.count(line) for line in {*confirmed})
            found["unfinished"] += record.spent != BUDGET or len(record.record.pending) > 0
    return found


def signals(count: int, seed: int) -> dict[str, int]:
    """Interrupt a process again and again, which goes on with its Tuner each time."""
    moments = random.Random(seed)
    found = dict.fromkeys(("signals", "runs", "confirmed", "lost", "twice", "unreadable"), 0)

    def work(path: Path, confirm: int) -> None:
        tuner, number, armed = None, 0, False

        def interrupt(*_: object) -> None:
            nonlocal armed
            if armed:
                armed = False
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, interrupt)
        while True:
            try:
                armed = True
                tuner = tuner or Tuner(small_prior(), path)
                while True:
                    number += 1
                    value = os.getpid() + number / 1024
                    tuner.tell({"rate": 0.01, "depth": 3, "kind": "sgd"}, value)
                    os.write(confirm, f"{value}\n".encode())
            except KeyboardInterrupt:
                continue

    while found["signals"] < count:
        found["runs"] += 1
        with TemporaryDirectory() as name:
            path = Path(name) / "run.jsonl"
            child = Child.start(lambda writer, p=path: work(p, writer))
            child.listen()
            for _ in range(100):
                time.sleep(moments.expovariate(1 / 0.01))
                os.kill(child.pid, signal.SIGINT)
                found["signals"] += 1
            child.end(kill=True)
            try:
                kept = [json.loads(line)[1] for line in values_in(path)]
            except (MetaKelError, ValueError):
                found["unreadable"] += 1
                continue
            found["confirmed"] += len(child.lines)
            found["lost"] += sum(float(line) not in kept for line in child.lines)
            found["twice"] += len(kept) - len({*kept})
    return found


def damage(step: int) -> dict[str, int]:
    """Flip a bit, or cut the journal, at every ``step``-th place, and salvage the rest."""
    count = dict.fromkeys(("flips", "cuts", "unnoticed", "lost", "changed"), 0)
    with TemporaryDirectory() as name:
        path = Path(name) / "j"
        tuner = Tuner(small_prior(), path, budget=12)
        for x in tuner:
            tuner.tell(x, measure(x))
        text = path.read_bytes()
        told = _told(Journal(path).read())
        ends = [i for i in range(len(text)) if text[i : i + 1] == b"\n"]
        for at in range(0, len(text), step):
            flipped = bytearray(text)
            flipped[at] ^= 1 << at % 8
            path.write_bytes(flipped)
            count["flips"] += 1
            whole = _told(salvaged(path).whole)
            count["lost"] += len(told) - len(whole) > (2 if at in ends else 1)
            count["changed"] += not {*whole} <= {*told}
        for cut in {*range(1, len(text) - 1, step), *(end + 1 for end in ends[:-1])}:
            path.write_bytes(text[:cut])
            count["cuts"] += 1
            lines = text[:cut].count(b"\n")
            try:
                Journal(path).read()
                count["unnoticed"] += 1
            except MetaKelError:
                pass
            if lines:
                count["lost"] += len(salvaged(path).events) < lines
    return count


def _told(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    return [(e["number"], e["value"]) for e in events if e["event"] == "told"]


def saving(kills: int, seed: int) -> dict[str, int]:
    """Kill a process that replaces a file by one of two others; one of them is always there."""
    priors = [small_prior(), small_prior(minimize=True)]
    moments, count = random.Random(seed), {"kills": 0, "unreadable": 0, "left_behind": 0}
    with TemporaryDirectory() as name:
        path = Path(name) / "prior.json"
        priors[0].save(path)

        def save(confirm: int) -> None:
            os.write(confirm, b"at work\n")
            while True:
                for prior in priors:
                    prior.save(path)

        while count["kills"] < kills:
            child = Child.start(save)
            child.listen()
            time.sleep(moments.uniform(0, 0.02))
            count["kills"] += child.end(kill=True)
            try:
                assert Prior.load(path).info.minimize in (True, False)
            except MetaKelError:
                count["unreadable"] += 1
        # A kill between writing and renaming leaves a temporary file, never a broken one.
        count["left_behind"] = len(list(Path(name).iterdir())) - 1
    return count


def full_disk(step: int) -> dict[str, int]:
    """A disk that is full after every number of bytes, for a journal and for a saved prior."""
    count = {"journals": 0, "files": 0, "confirmed": 0, "lost": 0, "unreadable": 0, "foreign": 0}
    with TemporaryDirectory() as name:
        prior, whole = small_prior(), Path(name) / "whole.json"
        prior.save(whole)
        for limit in range(0, 12_000, step):
            path = Path(name) / f"{limit}.jsonl"
            child = Child.start(lambda writer, p=path, n=limit: _limited(p, n, writer))
            child.end(kill=False)
            count["journals"] += 1
            count["confirmed"] += len([line for line in child.lines if line.startswith("[")])
            count["foreign"] += "ended as it should" not in child.lines
            try:
                kept = values_in(path) if path.exists() else []
            except ValueError:
                count["unreadable"] += 1
                continue
            count["lost"] += sum(x not in kept for x in child.lines if x.startswith("["))
        for limit in range(0, whole.stat().st_size, step):
            child = Child.start(lambda writer, n=limit: _limited_save(whole, n, writer))
            child.end(kill=False)
            count["files"] += 1
            count["foreign"] += "ended as it should" not in child.lines
            try:
                Prior.load(whole)
            except MetaKelError:
                count["unreadable"] += 1
    return count


def _limited(path: Path, limit: int, confirm: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        tune(path, 0, None, confirm)
    except MetaKelError:
        os.write(confirm, b"ended as it should\n")
        return
    os.write(confirm, b"ended as it should\n")


def _limited_save(path: Path, limit: int, confirm: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        small_prior().save(path)
    except MetaKelError:
        os.write(confirm, b"ended as it should\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=WAYS)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--step", type=int, default=97, help="bytes between two full disks")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    small_prior()  # learned once, before the forks
    ways = {
        "swarm": lambda: swarm(chosen.kills, chosen.processes, chosen.hosts, chosen.seed),
        "saving": lambda: saving(chosen.kills, chosen.seed),
        "disk": lambda: full_disk(chosen.step),
        "pauses": lambda: pauses(chosen.kills, chosen.processes, chosen.seed),
        "signals": lambda: signals(chosen.kills, chosen.seed),
        "damage": lambda: damage(chosen.step),
    }
    bad = ("lost", "unreadable", "unfinished", "foreign", "twice", "unnoticed", "changed")
    failed = False
    for what in chosen.what:
        count = ways[what]()
        failed |= any(count.get(name) for name in bad)
        sys.stdout.write(json.dumps({"what": what, **count}) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
