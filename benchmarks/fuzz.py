"""Give every reader input that was damaged at random, and look for errors that are not ours.

``python -m benchmarks.fuzz --inputs 1000000`` (``make fuzz``) is seeded: the same seed gives the
same inputs. What is looked for: an exception that is not a `MetaKelError`, an input that takes more
than 5 seconds, and more than 1 GB of memory. The first inputs of each kind that fail are printed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np

import metakel as mk
from benchmarks import fuzz_hosts
from metakel.cli.program import read_value
from metakel.errors import MetaKelError
from metakel.kernels import KernelSum, legendre
from metakel.optimize import Optimizer
from metakel.scale import scan
from metakel.tuner import Run, Store, Tuner
from metakel.tuner.journal import Journal, encoded, parsed
from metakel.tuner.store import as_value

SECONDS = 5.0
GIGABYTE = 1 << 30
SHOWN = 3

PIECES = [
    *(b"", b"\0", b"\n", b"\r\n", b'"', b"'", b",", b";", b"\t", b"{", b"}", b"[", b"]", b":"),
    *(b"nan", b"NaN", b"inf", b"-Infinity", b"null", b"true", b"1e999", b"-0", b"0x10", b"1_000"),
    *(
        b"9" * 400,
        b"[" * 5000,
        b'{"a":' * 3000,
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x80",
        b"\xed\xa0\x80",
    ),
    *("３３".encode(), "٣".encode(), "\u202e".encode(), b"\x1b[2J", b"../../x", b"{number}", b"%s"),
    *(b"-1", b"0", b"1e308", b"1e-320", b"14:05:33", b"- 0.5", b"1 234.5", b"2026-01-01", b"=1+1"),
]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Content with one to four changes: bytes flipped, parts cut, repeated, moved or replaced."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randint(0, len(data)), rng.randint(0, len(data))
        low, high = min(at, other), max(at, other)
        high = min(high, low + rng.choice([1, 3, 10, 100, 10**6]))
        change = rng.randrange(6)
        if change == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del data[low:high]
        elif change == 2:
            data[at:at] = data[low:high]
        elif change == 3:
            data[low:high] = rng.choice(PIECES)
        elif change == 4:
            data[at:at] = rng.choice(PIECES)
        else:
            data = data[:at]
    return bytes(data)


def damaged_json(document: object, rng: random.Random) -> object:
    """A document in which one entry, at any depth, is another kind of thing."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        name = rng.choice(list(document))
        return {**document, name: damaged_json(document[name], rng)}
    if isinstance(document, list) and document and rng.random() < 0.9:
        at = rng.randrange(len(document))
        return [*document[:at], damaged_json(document[at], rng), *document[at + 1 :]]
    odd = (
        None,
        True,
        -7,
        1e308,
        "x",
        "",
        [],
        {},
        [[1], [2, 3]],
        {"a": 1},
        10**9,
        0.5,
        float("nan"),
    )
    return rng.choice(odd)


def damaged_workbook(content: bytes, rng: random.Random) -> bytes:
    """A workbook with a damaged part, or that is damaged as a whole."""
    if rng.random() < 0.2:
        return damaged(content, rng)
    changed = BytesIO()
    with ZipFile(BytesIO(content)) as sound, ZipFile(changed, "w") as archive:
        spoiled = rng.choice(sound.namelist())
        for name in sound.namelist():
            part = sound.read(name)
            archive.writestr(name, damaged(part, rng) if name == spoiled else part)
    return changed.getvalue()


def other_tables(folder: Path, table: bytes) -> tuple[bytes, bytes]:
    """The same table as a Parquet file and as a workbook."""
    import pandas as pd

    frame = pd.read_csv(BytesIO(table))
    frame.to_parquet(folder / "sound.parquet")
    frame.to_excel(folder / "sound.xlsx", index=False)
    return tuple((folder / f"sound.{kind}").read_bytes() for kind in ("parquet", "xlsx"))  # type: ignore[return-value]


@dataclass
class Kind:
    """One kind of input: how to make one, and who reads it."""

    make: Callable[[random.Random], bytes]
    read: Callable[[bytes], object]
    weight: int
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)

    def try_one(self, rng: random.Random) -> None:
        """Make an input and read it."""
        data = self.make(rng)
        start = time.process_time()
        try:
            self.read(data)
        except MetaKelError:
            self.refused += 1
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error} <- {data[:200]!r}"[:500])
        seconds = time.process_time() - start
        self.slowest = max(self.slowest, seconds)
        if seconds > SECONDS:
            self.failures.append(f"{seconds:.1f} s <- {data[:200]!r}")
        self.inputs += 1


def small_history() -> tuple[mk.History, bytes]:
    """A few runs, and the same as a CSV file."""
    rng, lines = np.random.default_rng(0), ["task,rate,depth,kind,score"]
    for s in range(5):
        for _ in range(6):
            rate, depth = float(10 ** rng.uniform(-3, 0)), int(rng.integers(2, 9))
            score = 1 - (log10(rate) + 2) ** 2 / 10 + 0.01 * rng.standard_normal()
            lines.append(f"t{s},{rate:.5g},{depth},{rng.choice(['adam', 'sgd'])},{score:.5g}")
    rows = [line.split(",") for line in lines[1:]]
    types = {"task": str, "rate": float, "depth": int, "kind": str, "score": float}
    frame = {name: [of(row[i]) for row in rows] for i, (name, of) in enumerate(types.items())}
    return mk.History.from_frame(frame, task="task", output="score"), "\n".join(lines).encode()


def kinds(folder: Path) -> dict[str, Kind]:
    """All of them, with sound input to damage."""
    history, table = small_history()
    prior = mk.learn_prior(history, certify="none")
    tuner = Tuner(prior, folder / "sound.jsonl", budget=6)
    for x in tuner:
        tuner.tell(x, log10(x["rate"]))
    prior.save(folder / "prior.json")
    kernel = KernelSum.uniform(legendre(4, scaling="l2"))
    kernel.save(folder / "kernel.json")
    gpucb = mk.GPUCB(
        mk.FixedWidth(kernel, nu=2.0, noise_var=0.01),
        mk.box([(-1, 1)]),
        rng=np.random.default_rng(0),
    )
    gpucb.tell([0.5], 1.0)
    gpucb.save(folder / "optimizer.json")
    journal = (folder / "sound.jsonl").read_bytes()
    lines = journal.splitlines(keepends=True)
    events = Journal(folder / "sound.jsonl").read()
    packed = gzip.compress(table)
    parquet, workbook = other_tables(folder, table)
    outputs = [b"0.93", b"auc: 0.93", b"epoch 3 loss = -1.5e-3", b"done, score 12"]
    cells = [b"0.1", b"12", b"adam", b"True", b"(3, 3)", b""]

    def saved(name: str, load: Callable[[Path], object], weight: int) -> Kind:
        sound = (folder / name).read_bytes()
        document, path = json.loads(sound), folder / f"damaged-{name}"

        def make(rng: random.Random) -> bytes:
            if rng.random() < 0.5:
                return damaged(sound, rng)
            return json.dumps(damaged_json(document, rng)).encode()

        def read(data: bytes) -> object:
            path.write_bytes(data)
            return load(path)

        return Kind(make, read, weight)

    def file_of(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        path = folder / f"damaged.{suffix}"

        def written_and_read(data: bytes) -> object:
            path.write_bytes(data)
            return read(path)

        return written_and_read

    def event_line(rng: random.Random) -> bytes:
        event = damaged_json(rng.choice(events), rng)
        return json.dumps(event).encode() if rng.random() < 0.5 else damaged(rng.choice(lines), rng)

    def read_event(data: bytes) -> object:
        event = parsed(data)
        if event is None:
            raise mk.InputError(f"found {data[:60]!r}; expected an event")
        return Run().after([events[0], events[1], event])

    def journal_of_events(rng: random.Random) -> bytes:
        at = rng.randrange(len(events))
        try:
            return encoded([*events[:at], damaged_json(events[at], rng), *events[at + 1 :]])
        except ValueError:  # nan has no place in a line
            return damaged(journal, rng)

    def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode("utf-8", errors="replace"))

    def cell(value: str) -> object:
        return [prior.space.parse(name, value) for name in prior.space.names]

    def configuration(rng: random.Random) -> bytes:
        return json.dumps(damaged_json({"rate": 0.1, "depth": 3, "kind": "sgd"}, rng)).encode()

    def from_csv(path: Path) -> object:
        return mk.History.from_csv(path, task="task", output="score")

    return {
        "journal line": Kind(event_line, read_event, 400),
        "last line of output": Kind(lambda r: damaged(r.choice(outputs), r), text(read_value), 250),
        "cell": Kind(lambda r: damaged(r.choice(cells), r), text(cell), 150),
        "configuration": Kind(
            configuration, lambda data: prior.space.encode([json.loads(data)]), 100
        ),
        "value": Kind(
            lambda r: json.dumps(damaged_json(1.5, r)).encode(),
            lambda data: as_value(json.loads(data)),
            60,
        ),
        "journal file": Kind(
            lambda r: damaged(journal, r) if r.random() < 0.5 else journal_of_events(r),
            file_of("jsonl", Store.open),
            20,
        ),
        "journal file, and a Tuner that asks": Kind(
            lambda r: damaged(journal, r) if r.random() < 0.2 else journal_of_events(r),
            file_of("jsonl", lambda path: Tuner(prior, path).ask()),
            2,
        ),
        "CSV file": Kind(lambda r: damaged(table, r), file_of("csv", from_csv), 10),
        "packed CSV file": Kind(
            lambda r: gzip.compress(damaged(table, r)) if r.random() < 0.5 else damaged(packed, r),
            file_of("csv.gz", from_csv),
            3,
        ),
        "Parquet file": Kind(
            lambda r: damaged(parquet, r),
            file_of("parquet", lambda p: mk.History.from_parquet(p, task="task", output="score")),
            3,
        ),
        "Parquet file, scanned": Kind(
            lambda r: damaged(parquet, r),
            file_of("parquet", lambda p: scan(p, output="score").sample()),
            2,
        ),
        "workbook": Kind(
            lambda r: damaged_workbook(workbook, r),
            file_of("xlsx", lambda p: mk.History.from_excel(p, task="task", output="score")),
            2,
        ),
        "prior file, used": saved("prior.json", lambda p: used(mk.Prior.load(p).optimizer()), 6),
        "kernel file, used": saved(
            "kernel.json", lambda p: KernelSum.load(p)(np.zeros((2, 1)), np.ones((3, 1))), 3
        ),
        "optimizer file, used": saved("optimizer.json", lambda p: used(Optimizer.load(p)), 1),
        "frame": Kind(fuzz_hosts.seed_bytes, fuzz_hosts.read_frame, 60),
        "study of Optuna": Kind(fuzz_hosts.seed_bytes, fuzz_hosts.read_study, 2),
        "table with known values": Kind(fuzz_hosts.seed_bytes, fuzz_hosts.known_table(folder), 20),
    }


def used(optimizer: Optimizer) -> object:
    """Ask, tell and ask again."""
    optimizer.tell(optimizer.ask(), 0.5)
    return optimizer.ask()


@contextmanager
def _silent_logger() -> Iterator[None]:
    """Thousands of warnings say nothing here; whoever goes on in this process wants theirs."""
    logger = logging.getLogger("metakel")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def fuzz(inputs: int, seed: int, minutes: float) -> dict[str, Kind]:
    """As many inputs as asked for, or as time allows."""
    end = time.monotonic() + 60 * minutes
    with TemporaryDirectory() as folder, warnings.catch_warnings(), _silent_logger():
        warnings.simplefilter("ignore")
        found = kinds(Path(folder))
        total = sum(kind.weight for kind in found.values())
        for number, kind in enumerate(found.values()):
            rng = random.Random(1000 * seed + number)
            for _ in range(-(-inputs * kind.weight // total)):
                if time.monotonic() > end:
                    return found
                kind.try_one(rng)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0)
    chosen = parser.parse_args()
    found = fuzz(chosen.inputs, chosen.seed, chosen.minutes)
    print("| input | inputs | refused | foreign errors | slowest, s |\n|---|---|---|---|---|")
    for name, kind in found.items():
        counts = f"{kind.inputs:,} | {kind.refused:,} | {len(kind.failures)}"
        print(f"| {name} | {counts} | {kind.slowest:.2f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total = sum(kind.inputs for kind in found.values())
    print(f"\n{total:,} inputs, seed {chosen.seed}, at most {peak / GIGABYTE:.2f} GB")
    for name, kind in found.items():
        for failure in kind.failures[:SHOWN]:
            print(f"{name}: {failure}")
    failed = any(kind.failures for kind in found.values()) or peak > GIGABYTE
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
