"""End a call of a Tuner by an interrupt, or by a failing disk, at every place of it.

``python tests/tuner/torture_interrupts.py`` raises before and after every call that the functions
of the journal, the store and the Tuner make, once each, and prints one JSON line. After each error
the Tuner has to go on, for other threads and processes, too: what was confirmed is there, nothing
is there twice, and the Tuner knows what the journal says.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from tuning_history import measure, small_prior

from metakel import MetaKelError
from metakel.tuner import Store, Tuner, lock
from metakel.tuner.journal import count_file, used_by_this_thread

X = {"rate": 0.01, "depth": 6, "kind": "adam"}
FILES = [f"{name}.py" for name in ("journal", "store", "tuner", "lock", "events", "contextlib")]
Place = tuple[str, int, str, str]


def loop(tuner: Tuner) -> None:
    for x in tuner:
        tuner.tell(x, measure(x))


CALLS: dict[str, Callable[[Tuner], object]] = {
    "tell": lambda tuner: tuner.tell(X, 0.75),
    "ask": lambda tuner: tuner.ask_batch(2),
    "correct": lambda tuner: tuner.correct(0, 0.75),
    "look": lambda tuner: tuner.best,
    "loop": loop,
}


def watched(work: Callable[[], object], see: Callable[[Place, Any], None]) -> None:
    """Do something, and see where something is called or returns, in the functions of `FILES`.

    No signal can arrive between the end of a block and the release of its lock.
    """

    def profile(frame: FrameType, event: str, called: Any) -> None:
        file = Path(frame.f_code.co_filename).name
        in_c = event.startswith("c_")
        name = getattr(called, "__qualname__", "") if in_c else frame.f_code.co_qualname
        if file in FILES and name != "setprofile" and (event, name) != ("c_call", "RLock.__exit__"):
            see((file, frame.f_lasti, event, name), called)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)


def begin(folder: Path) -> tuple[bytes, bytes]:
    """A journal with a value and a suggestion, and what another process adds to it."""
    path = folder / "begun"
    tuner = Tuner(small_prior(), path)
    tuner.tell(tuner.ask(), 0.5)
    tuner.ask()
    text = path.read_bytes()
    tuner.tell({**X, "depth": 3}, 0.25)
    return text, path.read_bytes()[len(text) :]


def opened(path: Path, text: bytes, added: bytes) -> Tuner:
    """A Tuner that has not read yet what was added."""
    count_file(path).unlink(missing_ok=True)  # it is shorter than the one before
    path.write_bytes(text)
    tuner = Tuner(small_prior(), path, budget=4)
    with path.open("ab") as stream:
        stream.write(added)
    return tuner


def torture(call: str, kind: type[BaseException], folder: Path) -> tuple[int, list[str]]:
    """How many places there are, and what is wrong after an error at each."""
    texts, found = begin(folder), dict[Place, None]()
    tuner = opened(folder / "j", *texts)
    watched(lambda: CALLS[call](tuner), lambda place, called: found.update({place: None}))
    if kind is OSError:  # of a disk
        found = {p: None for p in found if p[2] == "c_return" and p[3] in dir(os)}
    wrong = []
    for place in found:
        tuner = opened(folder / "j", *texts)
        wrong += [f"{place}: {what}" for what in _wrong_after(tuner, call, place, kind)]
    return len(found), wrong


def _wrong_after(tuner: Tuner, call: str, at: Place, kind: type[BaseException]) -> list[str]:
    ended: BaseException | None = None  # a notebook keeps the last error, with all its frames

    def fail(place: Place, called: Any) -> None:
        if place == at:
            sys.setprofile(None)
            raise kind(5, "Input/output error")

    try:
        watched(lambda: CALLS[call](tuner), fail)
    except BaseException as error:
        ended = error
    path = tuner._store.place
    assert path is not None
    wrong = [] if isinstance(ended, kind | MetaKelError | None) else [repr(ended)]
    if used_by_this_thread():
        wrong.append("the thread takes itself to be at work")
    with path.open("rb") as other:
        if not lock.try_lock(other.fileno()):
            return [*wrong, "the journal is locked"]
    before = [(t.number, t.value) for t in Store.open(path).run.record.observed]
    thread = threading.Thread(target=tuner.tell, args=({**X, "depth": 7}, 0.125), daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        return [*wrong, "another thread waits"]
    kept = Store.open(path).run.record
    values = [trial.value for trial in kept.observed]
    sure = [0.25, *([0.75] if ended is None and call in ("tell", "correct") else [])]
    rules = {
        "a value was lost or moved": [(t.number, t.value) for t in kept.observed][:-1] == before,
        "a confirmed value is not there": {*sure} <= {*values}
        and not {0.5, 0.75}.isdisjoint(values),
        "a value is there twice": len({*values}) == len(values),
        "trials differ": [(t.state, t.value) for t in tuner.trials]
        == [(t.state, t.value) for t in kept],
        "the optimizer knows others": [t.value for t in tuner.optimizer.record.observed] == values,
    }
    return [*wrong, *(what for what, holds in rules.items() if not holds)]


def main() -> None:
    logging.getLogger("metakel").setLevel(logging.ERROR)
    places, wrong = 0, list[str]()
    for call in CALLS:
        for kind in (KeyboardInterrupt, OSError):
            with TemporaryDirectory() as folder:
                found, failures = torture(call, kind, Path(folder))
            places, wrong = places + found, wrong + failures
    sys.stdout.write(json.dumps({"what": "interrupts", "places": places, "wrong": wrong}) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
