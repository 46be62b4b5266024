"""Run the command of one evaluation, and read its value and its curve; signals stop it.

Where `metakel tune` itself is killed by force, a process of its own ends the program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from types import FrameType
from typing import IO, Any

from metakel._arrays import is_number
from metakel._files import refuse_device
from metakel.cli.console import note, refuse_overwriting
from metakel.curves import Curve, Decision, from_one
from metakel.errors import InputError
from metakel.tuner.lock import reserved

# A number that stands alone or after its name, as in "0.93", "auc: 0.93" or "epoch 3, loss 0.2".
# After another number, as in 14:05:33, "1 234.5" or "- 0.5", it may be a part of something else.
# Digits are those of ASCII; 1_000 is a thousand, and 3_3 is the name of something.
DIGITS = r"(?:[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+)"
NUMBER = rf"[-+]?(?:{DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
VALUE = re.compile(
    rf"(?:^|(?:^|[\s:=,])(?:[^\W\d]|[(\['\"])[^\s:=,]*(?:\s*[:=,]\s*|\s+))({NUMBER})\s*$"
)
TAIL = 1 << 16
LOOKS = 0.1  # seconds between two looks at the output of a running program
# The last is Ctrl-Break on Windows.
STOPPING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK")
GRACE = 3.0  # seconds between the request to end and force
# It reads whom to watch, 0 for nobody. The end of its input is the end of `metakel tune`.
WATCH = f"""
import os, signal, sys, time
group = 0
for line in sys.stdin:
    group = int(line)
try:
    os.killpg(group, signal.SIGTERM) if group else sys.exit()
    end = time.monotonic() + {GRACE}
    while time.monotonic() < end:
        os.killpg(group, 0)
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
except OSError:
    pass
"""


class StopSignals:
    """Ctrl-C, kill, a closed terminal and quit raise KeyboardInterrupt, but not just anywhere.

    While a program is started or ended (`deferred`) they wait, so that it cannot be lost. Signals
    that were ignored before, as under nohup, stay ignored.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._deferred, self._received = False, False

    def __enter__(self) -> StopSignals:
        for name in STOPPING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if not self._deferred:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait until the end of this block."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Within a deferred block: signals raise here, those that came before at once."""
        try:
            self._deferred = False
            if self._received:
                raise KeyboardInterrupt
            yield
        finally:
            self._deferred = True


class Guard:
    """Outlives this process for as long as it takes to end the program, with all its children.

    Nothing is watched outside of the block, nor on Windows.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guard:
        with suppress(OSError):
            if sys.platform != "win32":
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", WATCH],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a signal to the group of this process passes it by
                )
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            process.wait()

    @property
    def watch(self) -> Callable[[], None] | None:
        """Is called in the process that becomes the program; None where nobody watches."""
        return None if self._process is None else lambda: self._say(os.getpid())

    def rest(self) -> None:
        """The program has ended."""
        self._say(0)

    def _say(self, group: int) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed as well
                os.write(self._process.stdin.fileno(), f"{group}\n".encode())


@dataclass(frozen=True)
class Program:
    """How an evaluation is done."""

    command: Sequence[str]  # words, with {name} for parameters; no shell ever sees them
    timeout: float | None = None  # seconds after which an evaluation has failed
    retries: int = 0  # how often a failed evaluation is tried again
    value_file: str = ""  # with placeholders; empty: the value is the last line of the output
    signals: StopSignals = field(default_factory=StopSignals)  # what ends the program
    objective: str = ""
    others: Sequence[str] = ()  # outputs that every evaluation has to give, too
    names: Sequence[str] = ()  # of all parameters
    kept: Sequence[Path] = ()  # no value files: the prior and the journal
    # Value files of this run so far; what a file held before is removed only if it is a value.
    own: set[str] = field(default_factory=set)
    # Whether an earlier run may have left a value below other lines, as programs print them.
    resumed: bool = False
    steps: re.Pattern[str] | None = None  # which lines are values at steps; see `step_pattern`
    guard: Guard = field(default_factory=Guard)  # ends the program where this process is killed

    @contextmanager
    def reserved(self, names: Sequence[str]) -> Iterator[None]:
        """A value file of one name for all evaluations is this run's alone."""
        fixed = self.value_file and not _pattern((*names, "number")).search(self.value_file)
        with _reserved(Path(self.value_file)) if fixed else nullcontext():
            if fixed:
                self._refuse_no_value(self.value_file)
            yield

    def run(
        self,
        number: int,
        configuration: Mapping[str, Any],
        decide: Callable[[Curve], Decision] | None = None,
    ) -> RunResult:
        """Evaluate one configuration; again where it fails.

        ``decide`` is asked after every value of `steps`, and ends the program.
        """
        for _ in range(self.retries):
            outcome = self._try(number, configuration, decide)
            if outcome.state != "failed":
                return outcome
            note(f"{number}: {outcome.reason}; trying again")
        return self._try(number, configuration, decide)

    def _try(
        self,
        number: int,
        configuration: Mapping[str, Any],
        decide: Callable[[Curve], Decision] | None,
    ) -> RunResult:
        steps = None if self.steps is None or decide is None else Steps(self.steps, decide)
        # A parameter that is not there by its condition is an empty text.
        values = {**dict.fromkeys(self.names, ""), "number": number, **configuration}
        if not self.value_file:
            return self._run(values, None, steps)
        name = self._value_file(values)
        with nullcontext() if name == self.value_file else _reserved(Path(name)):
            # A value of an earlier try is not one of this.
            self._refuse_no_value(name)
            Path(name).unlink(missing_ok=True)
            self.own.add(name)
            return self._run(values, Path(name), steps)

    def _refuse_no_value(self, name: str) -> None:
        """Nothing but a file with a value, or without anything, is removed."""
        file = Path(name)
        refuse_device(file)
        refuse_overwriting(file, *self.kept)
        if file.is_symlink():
            raise InputError(f"--value-file {file} is a link; expected a file, which is replaced")
        if name in self.own or not file.exists():
            return
        lines = [line for line in _content(file).splitlines() if line.strip()]
        if self._is_value(lines) if lines else os.access(file, os.R_OK):
            return
        found = f"found {lines[0][:80]!r}" if lines else "it cannot be read"
        raise InputError(
            f"--value-file {file} is there already and is no value ({found}); it is left as it is. "
            "Every evaluation replaces this file; expected a value of an earlier run, or no file: "
            "name another one, or move this one away"
        )

    def _is_value(self, lines: Sequence[str]) -> bool:
        """Whether lines are what a program reports; a value that is not finite is one here."""
        columns = {tuple(line.count(mark) for mark in ",;\t") for line in lines}
        if len(lines) > 1 and len(columns) == 1 and any(*columns):  # a table
            return False
        names = "|".join(map(re.escape, (self.objective, *self.others)))
        outputs = all(re.match(rf"\s*({names})\s*[:=]", line) for line in lines)
        if len(lines) > 1 and not (outputs or self.resumed):  # a column, settings, notes
            return False
        text = re.sub(r"\b(nan|inf|infinity)\b", "0", "\n".join(lines), flags=re.IGNORECASE)
        results = (read_result(text, self.objective, others) for others in (self.others, ()))
        return any(result.value is not None for result in results)

    def _value_file(self, values: Mapping[str, Any]) -> str:
        """The name of the file; a value must not lead to another folder, as the file is removed."""
        used = _pattern(tuple(values)).findall(self.value_file)
        for name in used:
            text = _text(values[name])
            if any(mark in text for mark in ("/", "\\", ":", "\0")):
                raise _another_place(self.value_file, f"{name} is {text!r}")
        file = fill([self.value_file], values)[0]
        parts = zip(_parts(self.value_file), _parts(file), strict=True)
        # Without a name, a/{x}/b is a//b, {x}/b is /b, and with dots it is in a folder above.
        if any(found in ("", ".", "..") and found != given for given, found in parts):
            raise _another_place(self.value_file, f"it is {file!r} for this configuration")
        return file

    def _run(
        self, values: Mapping[str, Any], value_file: Path | None, steps: Steps | None
    ) -> RunResult:
        words = fill(self.command, values)
        configuration = {name: value for name, value in values.items() if name != "number"}
        environment = {
            **os.environ,
            "METAKEL_NUMBER": str(values["number"]),
            "METAKEL_CONFIGURATION": json.dumps(configuration),
            # Python keeps lines back that nobody waits for at a terminal.
            **({} if steps is None else {"PYTHONUNBUFFERED": "1"}),
        }
        # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting.
        with TemporaryFile() as out, TemporaryFile() as err:
            try:
                code = self._finish(words, environment, out, err, steps)
            except Stopped as stop:
                return RunResult(None, str(stop), {}, steps.curve if steps else {}, stopped=True)
            except subprocess.TimeoutExpired:
                return RunResult(None, f"no result within {self.timeout:g} s")
            except FileNotFoundError:
                raise InputError(f"there is no program {words[0]!r}") from None
            except PermissionError:
                raise InputError(f"{words[0]!r} is not a program that can be run") from None
            except (OSError, ValueError) as error:  # a NUL or too long a word, by a value
                return RunResult(None, f"cannot be run: {error}")
            if code != 0:
                what = f"signal {-code}" if code < 0 else f"exit code {code}"
                return RunResult(None, f"{what}: {_last_line(err) or _last_line(out)}"[:300])
            text = _tail(out) if value_file is None else _content(value_file)
        result = read_result(text, self.objective, self.others)
        return result if steps is None else replace(result, curve=steps.curve)

    def _finish(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        out: IO[bytes],
        err: IO[bytes],
        steps: Steps | None,
    ) -> int:
        with self.signals.deferred():
            process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(environment),
                start_new_session=True,  # so that it can be ended with all its children
                # By the new process, as this one may be killed before it knows the other's number.
                # No other thread of `metakel tune` can hold a lock of Python meanwhile.
                preexec_fn=self.guard.watch,
            )
            try:
                with self.signals.admitted():
                    if steps is None:
                        return process.wait(self.timeout)
                    return steps.wait(process, self.timeout, out, err)
            except BaseException:
                _end(process)
                raise
            finally:
                self.guard.rest()


# Placeholders


def check_command(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names that do not occur; refuses placeholders that no parameter fills."""
    if not command:
        raise InputError("no command to tune; write it after --, with {name} for each parameter")
    known = (*names, "number")
    several = len(_pattern(known).sub("", command[0]).split()) > 1
    if several and len(command) == 1 and shutil.which(command[0]) is None:
        raise InputError(
            f"there is no program {command[0]!r}: quotes made one word of it. Write the words of "
            f"the command without quotes around them: -- {command[0]}"
        )
    if _pattern(known).search(command[0]):
        raise InputError(f"the program {command[0]!r} must not depend on a parameter")
    for word in command:
        check_placeholders(word, names, "the command")
    text = " ".join(command)
    return [name for name in names if f"{{{name}}}" not in text]


def check_placeholders(word: str, names: Sequence[str], where: str) -> None:
    """Refuse placeholders that nothing fills."""
    known = (*names, "number")
    for unknown in re.findall(r"\{([A-Za-z_][\w.-]*)\}", _pattern(known).sub("", word)):
        shown = ", ".join(f"{{{name}}}" for name in known)
        raise InputError(f"{{{unknown}}} in {where} is not a parameter; known are {shown}")


def fill(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Words with every ``{name}`` replaced, once: a value is never looked at again."""
    pattern = _pattern(tuple(values))
    return [pattern.sub(lambda found: _text(values[found[1]]), word) for word in words]


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(r"\{(" + "|".join(map(re.escape, longest_first)) + r")\}")


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


# Processes and files


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all its children: by request first, then by force."""
    for sign in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with suppress(ProcessLookupError):
            if sys.platform == "win32":
                _end_tree_on_windows(process)
            else:
                os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _end_tree_on_windows(process: subprocess.Popen[bytes]) -> None:
    """There are no process groups to send a signal to; taskkill knows who started whom."""
    try:
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], capture_output=True)
    except OSError:
        process.kill()


def _parts(path: str) -> list[str]:
    return re.split(r"[/\\]", path)


def _another_place(value_file: str, reason: str) -> InputError:
    return InputError(
        f"--value-file {value_file}: {reason}, which would lead to another place; expected values "
        "without separators, as {number} has"
    )


@contextmanager
def _reserved(value_file: Path) -> Iterator[None]:
    """Nobody else's program writes its value there meanwhile."""
    with reserved(value_file, wait=False) as mine:
        if not mine:
            raise InputError(
                f"{value_file} is in use by another `metakel tune`, and values would get mixed up; "
                "expected a file of its own for every evaluation: --value-file 'value-{number}.txt'"
            )
        yield


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - TAIL, 0))
    return stream.read().decode(errors="replace")


def _last_line(stream: IO[bytes]) -> str:
    lines = _tail(stream).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _content(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return _tail(stream)
    except OSError:
        return ""


# What a program prints: its result, and values at steps while it runs


@dataclass(frozen=True)
class RunResult:
    """A value and what else was measured, or the reason why there is no value.

    ``curve`` has values by step, and ``stopped`` says that it ended the program early.
    """

    value: float | None
    reason: str = ""
    outputs: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    stopped: bool = False

    @property
    def state(self) -> str:
        """What became of it: complete, failed or stopped."""
        return "stopped" if self.stopped else "failed" if self.value is None else "complete"


def read_result(text: str, objective: str = "", others: Sequence[str] = ()) -> RunResult:
    """The outputs that a program has printed.

    The last line is a JSON object of numbers by name; or there are lines such as
    ``temperature=71.3``, of which the last of each name counts; or the last line is the value of
    the only output, alone or after a name.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    found = _from_json(last)
    if found is None and others:
        found = {name: n for name in (objective, *others) if (n := _named(lines, name)) is not None}
        if objective not in found and re.fullmatch(NUMBER, last):
            found[objective] = float(last)
    if found is None:
        return read_value(last)
    return _chosen(found, objective, others, last)


def read_value(text: str) -> RunResult:
    """The number that a line is, or ends with after its name, as in ``0.93`` or ``auc: 0.93``."""
    found = VALUE.search(text)
    if found is None:
        what = f"found {text[:80]!r}" if text else "found nothing"
        return RunResult(
            None, f"{what}; expected a number, alone or after its name, as in loss: 0.25"
        )
    value = float(found[1])
    return RunResult(value) if isfinite(value) else _not_finite(value, {})


def _from_json(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _named(lines: Sequence[str], name: str) -> float | None:
    """The number of the last line that begins with a name."""
    line_of = re.compile(rf"{re.escape(name)}\s*[:=]\s*({NUMBER}|nan|[-+]?inf)", re.IGNORECASE)
    found = (match for line in reversed(lines) if (match := line_of.fullmatch(line)))
    match = next(found, None)
    return None if match is None else float(match[1])


def _chosen(
    found: Mapping[str, Any], objective: str, others: Sequence[str], last: str
) -> RunResult:
    numbers = {name: float(v) for name, v in found.items() if is_number(v)}
    lacking = [name for name in (objective, *others) if name not in numbers]
    if lacking:
        what = f"found {last[:80]!r}" if last else "found nothing"
        example = json.dumps(dict.fromkeys((objective, *others), 0.25))
        return RunResult(
            None,
            f"{what}; expected numbers for {', '.join(lacking)}: a JSON object as the last line, "
            f"as in {example}, or lines as in {lacking[0]}=0.25",
        )
    value = numbers.pop(objective)
    measured = {name: number for name, number in numbers.items() if isfinite(number)}
    return RunResult(value, "", measured) if isfinite(value) else _not_finite(value, measured)


def _not_finite(value: float, measured: Mapping[str, float]) -> RunResult:
    return RunResult(None, f"the value is {value}", measured)


class Stopped(Exception):
    """A program was ended early, by its curve."""


class Steps:
    """Values at steps, read from the output of a program while it runs.

    By a `step_pattern`, with the groups step and value; ``decide`` says whether the program is to
    be ended, from its curve.
    """

    def __init__(self, pattern: re.Pattern[str], decide: Callable[[Curve], Decision]) -> None:
        self._pattern, self._decide = pattern, decide
        self._found: dict[int, float] = {}
        self._places: dict[int, int] = {}  # by file: up to where it was read

    @property
    def curve(self) -> dict[int, float]:
        """Values by step, from one."""
        return from_one(self._found)

    def wait(self, program: subprocess.Popen[bytes], timeout: float | None, *to: IO[bytes]) -> int:
        """Wait for a program, and look at what it writes; `Stopped` where that says so."""
        end = None if timeout is None else monotonic() + timeout
        while True:
            try:
                left = LOOKS if end is None else min(LOOKS, max(end - monotonic(), 0))
                code = program.wait(left)
            except subprocess.TimeoutExpired:
                if end is not None and monotonic() >= end:
                    raise
                self._look(to)
            else:
                self._look(to, last=True)
                return code

    def _look(self, files: Sequence[IO[bytes]], *, last: bool = False) -> None:
        """Take in new lines; the ``last`` ones stop nothing."""
        for file in files:
            number = file.fileno()
            place = self._places.get(number, 0)
            # The program writes where the position of the file is: it is left where it is.
            new = os.pread(number, os.fstat(number).st_size - place, place)
            end = len(new) if last else max(new.rfind(b"\n"), new.rfind(b"\r")) + 1
            self._places[number] = place + end
            for line in re.split(r"[\r\n]+", new[:end].decode(errors="replace")):
                if found := self._pattern.search(line):
                    self._found[int(found["step"])] = float(found["value"])
                    decision = None if last else self._decide(self.curve)
                    if decision:
                        raise Stopped(decision.reason)


def step_pattern(text: str) -> re.Pattern[str]:
    """The lines that ``epoch={step} val={value}`` means; blanks are as many as there are."""
    if text.count("{step}") != 1 or text.count("{value}") != 1:
        raise InputError(
            f"--step-pattern is {text!r}; expected a part of a line with {{step}} and {{value}}, "
            "as in 'epoch={step} val={value}'"
        )
    if not hasattr(os, "pread"):
        raise InputError("--step-pattern: this system cannot read a file that is being written")
    words = r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))
    value = rf"(?P<value>{NUMBER}|nan|[-+]?inf)(?!\w|\.[0-9])"
    known = words.replace(r"\{step\}", r"(?<![0-9.])(?P<step>[0-9]+)").replace(r"\{value\}", value)
    return re.compile(known, re.IGNORECASE)
