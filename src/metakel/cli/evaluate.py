"""Run the command of one evaluation and read its value."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from metakel.cli.placeholders import fill
from metakel.errors import InputError

GRACE = 3.0
TAIL = 1 << 16
# A comma between digits may part values, thousands or decimals: not ours to guess.
NUMBER = re.compile(
    r"(?:^|[\s=:]|(?<!\d),)"
    r"([-+]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*$"
)


@dataclass(frozen=True)
class Outcome:
    """A value, or the reason why there is none."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class Program:
    """How an evaluation is done.

    Parameters
    ----------
    command : sequence of str
        Words, with ``{name}`` for parameters.
    timeout : float or None
        Seconds after which an evaluation has failed.
    value_file : str
        File that holds the value, with placeholders; empty: the last line of the output.
    """

    command: Sequence[str]
    timeout: float | None = None
    value_file: str = ""

    def run(self, number: int, configuration: Mapping[str, Any]) -> Outcome:
        """Evaluate one configuration."""
        values = {"number": number, **configuration}
        words = fill(self.command, values)
        target = Path(fill([self.value_file], values)[0]) if self.value_file else None
        if target is not None:
            target.unlink(missing_ok=True)  # a value of an earlier try is not one of this
        environment = {
            **os.environ,
            "METAKEL_NUMBER": str(number),
            "METAKEL_CONFIGURATION": json.dumps(dict(configuration)),
        }
        # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting.
        with TemporaryFile() as out, TemporaryFile() as err:
            try:
                code = _finish(words, environment, out, err, self.timeout)
            except subprocess.TimeoutExpired:
                return Outcome(None, f"no result within {self.timeout:g} s")
            except FileNotFoundError:
                raise InputError(f"there is no program {words[0]!r}") from None
            except PermissionError:
                raise InputError(f"{words[0]!r} is not a program that can be run") from None
            except (OSError, ValueError) as error:  # a NUL or too long a word, by a value
                return Outcome(None, f"cannot be run: {error}")
            if code != 0:
                what = f"signal {-code}" if code < 0 else f"exit code {code}"
                return Outcome(None, f"{what}: {_last_line(err) or _last_line(out)}"[:300])
            text = _last_line(out) if target is None else _content(target)
        return read_value(text)


def read_value(text: str) -> Outcome:
    """The number that a line is or ends with, as in ``0.93`` or ``auc: 0.93``."""
    found = NUMBER.search(text)
    if found is None:
        what = f"found {text[:80]!r}" if text else "found nothing"
        return Outcome(None, f"{what}; expected a number")
    value = float(found[1])
    return Outcome(value) if isfinite(value) else Outcome(None, f"the value is {value}")


def _finish(
    words: Sequence[str],
    environment: Mapping[str, str],
    out: IO[bytes],
    err: IO[bytes],
    timeout: float | None,
) -> int:
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=dict(environment),
        start_new_session=True,  # so that it can be ended with all its children
    )
    try:
        return process.wait(timeout)
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, sign)
            else:
                process.kill()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)


def _last_line(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - TAIL, 0))
    return _last(stream.read().decode(errors="replace"))


def _content(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return _last_line(stream)
    except OSError:
        return ""


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
