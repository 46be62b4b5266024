"""What is whole in a damaged journal: lines by their checksums, under the numbers they had.

A line is whole if its checksum follows from the one noted on the line before, or from the one
computed over that line. Where the checksum itself was damaged, the line after it vouches for it.

Trials are numbered by their order, so a lost line may have held a number. Whether it did is decided
by what comes later: results say the number and the configuration that was asked. Where it did, an
empty trial takes its place, and every other trial keeps its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from metakel._files import as_path, refuse_device, write_new, writing
from metakel.errors import InputError
from metakel.tuner.fold import FIELDS, Run, check_header
from metakel.tuner.journal import (
    SEAL_LENGTH,
    Event,
    checksum,
    encoded,
    noted_count,
    parsed,
    what_is_wrong,
)

SEAL = re.compile(rb', "crc": "[0-9a-f]{8}"}')
SEALED = re.compile(SEAL.pattern + rb"\Z")
OPENING = b'{"event": "'
LINE_END, MARK_LENGTH, SAMPLE = 2, 3, 80  # bytes, at most
SUMS = 6  # checksums that the line before may have had, in a row of damaged lines
GUESSES = 8  # ways in which the lost lines may have been, that are followed at once
IMPOSSIBLE = 10
RESULTS = ("told", "failed", "stopped", "corrected")


@dataclass(frozen=True)
class Damage:
    """Something that is not whole: its line in the file, and what it seems to be."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


@dataclass(frozen=True)
class Salvaged:
    """What a damaged journal still says."""

    # With the header and every number in its place; empty where the header is damaged.
    events: tuple[Event, ...]
    damaged: tuple[Damage, ...]
    whole: tuple[Event, ...]  # of whole lines, as they were written


def salvaged(path: str | Path) -> Salvaged:
    """All that is whole in a journal; the file is only read."""
    file = as_path(path)
    try:
        refuse_device(file)
        text = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no journal {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    pieces, ends = _pieces(text)
    found = _checked([piece for _, piece in pieces])
    whole = tuple(event for event in found if event is not None)
    lost = [Damage(n, _seems(p)) for (n, p), e in zip(pieces, found, strict=True) if e is None]
    if found and found[-1] is None and not text.endswith(b"\n"):
        lost[-1] = Damage(pieces[-1][0], "unfinished; nobody was told that it was recorded")
        found.pop()
    noted, had = noted_count(file)
    if had > len(pieces) and pieces and noted == checksum(pieces[0][1]):
        lost.append(Damage(had, f"cut off, as is all after line {len(pieces)}"))
    if not whole:
        wrong = what_is_wrong(text[:SAMPLE])
        raise InputError(f"{path} is no journal, or no checksum of it holds: at first, {wrong}")
    if found[0] is None:
        return Salvaged((), tuple(lost), whole)
    check_header(found[0], str(path))
    events, unplaced = _in_place(pieces, found)
    Run().after(events, str(path))
    damaged = sorted([*lost, *ends, *unplaced], key=lambda damage: damage.line)
    return Salvaged(tuple(events), tuple(damaged), whole)


def write(out: str | Path, events: Sequence[Event]) -> None:
    """A new journal with these events; a file that is there is never overwritten."""
    place = as_path(out)
    if place.exists():
        raise InputError(f"{out} is there already, and is left as it is; expected a new name")
    with writing(out):
        write_new(place, encoded(events))


# Lines


def _pieces(text: bytes) -> tuple[list[tuple[int, bytes]], list[Damage]]:
    """Lines with their numbers, as they were written, and line ends that were changed."""
    begin = text[: MARK_LENGTH + len(OPENING)].find(OPENING)
    pieces: list[tuple[int, bytes]] = []
    ends = []
    for number, row in enumerate(text[max(begin, 0) :].split(b"\n"), start=1):
        row = row.rstrip(b"\r")
        while row:
            end = _end_of_event(row)
            pieces.append((number, row[:end]))
            row = row[end:]
            if row:
                ends.append(Damage(number, "its line end was changed; the events are whole"))
                begin = row.find(b"{")
                row = row[begin:] if 0 <= begin <= LINE_END else row
                row = row if begin >= 0 or len(row) > LINE_END else b""
    return _rejoined(pieces), ends


def _end_of_event(row: bytes) -> int:
    """Where the first event of a row ends: another follows it where a line end was changed."""
    seal = SEAL.search(row)
    if seal is None or seal.end() == len(row):
        return len(row)
    try:
        event, end = json.JSONDecoder().raw_decode(row.decode("latin-1"))
    except (ValueError, RecursionError):
        return len(row)
    return end if isinstance(event, dict) and "crc" in event else len(row)


def _rejoined(pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """With the halves of a line together, which a byte that became a line end has cut."""
    joined: list[tuple[int, bytes]] = []
    for number, piece in pieces:
        if joined and not SEALED.search(joined[-1][1]) and _differing(piece, OPENING) > 1:
            joined[-1] = joined[-1][0], joined[-1][1] + b"\n" + piece
        else:
            joined.append((number, piece))
    return joined


def _checked(pieces: Sequence[bytes]) -> list[Event | None]:
    """The events of whole lines, None for others."""
    found: list[Event | None] = []
    before = [0]
    for i, piece in enumerate(pieces):
        sums = [crc32(_body(piece), start) for start in before]
        noted = checksum(piece) if SEALED.search(piece) else None
        if noted in sums:
            found.append(parsed(_body(piece)))
            before = [checksum(piece)]
            continue
        after = pieces[i + 1] if i + 1 < len(pieces) else b""
        vouched = [
            start
            for start in sums
            if SEALED.search(after) and crc32(_body(after), start) == checksum(after)
        ]
        found.append(parsed(_body(piece)) if vouched else None)
        before = vouched or ([] if noted is None else [noted]) + sums[:SUMS]
    return found


def _body(piece: bytes) -> bytes:
    """A line without its checksum."""
    return piece[:-SEAL_LENGTH] + b"}"


def _differing(text: bytes, expected: bytes) -> int:
    """How many bytes of the beginning of a text are not as expected."""
    same = sum(a == b for a, b in zip(text, expected, strict=False))
    return len(expected) - same


def _kind(piece: bytes) -> str:
    """Of a damaged line, as far as it can be read."""
    rest = piece[len(OPENING) :]
    wrong = {kind: _differing(rest, kind.encode() + b'"') for kind in FIELDS}
    kind = min(wrong, key=lambda k: wrong[k])
    return kind if wrong[kind] <= 1 else ""


def _seems(piece: bytes) -> str:
    kind, number = _kind(piece), re.search(rb'"number": (\d+)', piece)
    if not kind:
        return f"lost; found {piece[:60]!r}"
    counts = "; the value before it counts again" if kind == "corrected" else ""
    return f"lost; it seems to be {kind!r}{f' of trial {int(number[1])}' if number else ''}{counts}"


# Numbers


@dataclass
class _Guess:
    """One way in which the lost lines may have been, and how well it fits what came later."""

    # Configuration (None where it is lost), and whether there is a result.
    trials: list[tuple[Any, bool]] = field(default_factory=list)
    misfit: int = 0
    unlikely: int = 0
    events: list[Event] = field(default_factory=list)  # with trials in the place of lost ones
    unplaced: list[Damage] = field(default_factory=list)  # whole lines that fit nowhere

    @property
    def cost(self) -> tuple[int, int]:
        """Small for what fits."""
        return self.misfit, self.unlikely

    def take(self, event: Event, line: int) -> None:
        """One more whole event."""
        kind, number, run = event["event"], event.get("number"), event.get("configuration")
        if kind == "asked" or (kind in RESULTS and number is None):
            self.trials.append((run, kind != "asked"))
        elif number is not None and kind in FIELDS:
            if number >= len(self.trials) or (kind == "corrected" and not self.trials[number][1]):
                self.misfit += IMPOSSIBLE
                told = f"{kind!r} of trial {number}: {event.get('value')}"
                what = f"whole, but left out as that trial is lost: {told}"
                self.unplaced.append(Damage(line, what))
                return
            asked, done = self.trials[number]
            if kind in RESULTS:
                self.misfit += 0 if asked is None else 1 if asked != run else -1
                self.trials[number] = (asked if asked is not None else run), True
                if done and kind != "corrected":  # a second result is a trial of its own
                    self.trials.append((run, True))
            elif kind in ("adopted", "released"):
                self.misfit += done
            elif kind == "dropped":
                self.trials[number] = asked, False
        self.events.append(event)

    def after(
        self, lost: _Lost, number: int | None = None, *, unlikely: bool, later: Event | None = None
    ) -> _Guess:
        """With a lost line that added nothing, a new trial, or the result of one."""
        trials, events = list(self.trials), list(self.events)
        why = f"line {lost.line} of the journal was damaged"
        if number is not None:
            new = number == len(trials)
            asked = None if new else trials[number][0]
            row = asked or (later or {}).get("configuration", lost.known)
            done = not new or (later is not None and later["event"] == "corrected")
            trials[number:] = [(asked, done), *trials[number + 1 :]]
            if done:  # a correction follows, or a second result
                of = None if new else number
                failed = {"event": "failed", "number": of, "configuration": row, "reason": why}
                events.append(failed)
            else:
                asked_for = {"event": "asked", "configuration": row, "by": None, "expected": None}
                events.append(asked_for)
                if later is None:
                    drop = {"event": "dropped", "number": number, "again": True, "reason": why}
                    events.append(drop)
        return _Guess(trials, self.misfit, self.unlikely + unlikely, events, [*self.unplaced])

    def ways(self, lost: _Lost) -> Iterator[_Guess]:
        """What a lost line may have been; the likely way is the one that its text suggests."""
        new, kind, later = len(self.trials), _kind(lost.piece), lost.later
        pending = [n for n, (_, done) in enumerate(self.trials) if not done]
        told = [n for n in pending if _is_result_of(lost.piece, kind, n, self.trials[n][0])]
        of = told[0] if len(told) == 1 and told[0] in later else None
        added = kind == "asked" or _is_result_of(lost.piece, kind, None, None)
        yield self.after(lost, unlikely=added or of is not None)
        yield self.after(lost, new, unlikely=not added, later=later.get(new))
        for n in pending:
            if n == of or later.get(n, {}).get("event") == "corrected":
                yield self.after(lost, n, unlikely=n != of, later=later.get(n))


@dataclass(frozen=True)
class _Lost:
    """A line that is not whole."""

    line: int
    piece: bytes
    later: Mapping[int, Event]  # by trial: the next result of it
    known: Any  # some configuration


def _in_place(
    pieces: Sequence[tuple[int, bytes]], found: Sequence[Event | None]
) -> tuple[list[Event], list[Damage]]:
    """Whole events, with trials in the place of lost ones; and events that fit nowhere."""
    known = next((e["configuration"] for e in found if e and "configuration" in e), None)
    later: dict[int, list[tuple[int, Event]]] = {}
    for i, event in enumerate(found):
        if event is not None and event["event"] in RESULTS and event.get("number") is not None:
            later.setdefault(event["number"], []).append((i, event))
    guesses = [_Guess()]
    for i, ((line, piece), event) in enumerate(zip(pieces, found, strict=False)):
        if event is None:
            if known is None:  # no whole line tells of a trial
                continue
            results = {n: e for n, all_ in later.items() for k, e in all_[::-1] if k > i}
            lost = _Lost(line, piece, results, known)
            guesses = sorted((way for g in guesses for way in g.ways(lost)), key=lambda g: g.cost)
            guesses = guesses[: 4 * GUESSES]
            continue
        for guess in guesses:
            guess.take(event, line)
        if len(guesses) > GUESSES:
            guesses.sort(key=lambda guess: guess.cost)
            guesses = guesses[:GUESSES] if guesses[0].misfit < guesses[-1].misfit else guesses
    best = min(guesses, key=lambda guess: guess.cost)
    return best.events, best.unplaced


def _is_result_of(piece: bytes, kind: str, number: int | None, run: Any) -> bool:
    """Whether a damaged line reads as a result of a trial; None for one without a number."""
    if kind not in ("told", "failed", "stopped"):
        return False
    event = {"event": kind, "number": number, "configuration": run}
    expected = json.dumps(event).encode()[:-1]
    return _differing(piece, expected if number is not None else expected[: -len("null")]) <= 1
