"""What damage does to a journal of metakel, to Optuna's journal file and to its SQLite database.

``python -m benchmarks.storages`` runs five trials in each, damages the file as a crash or an editor
would, opens it again and goes on with one more trial.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from benchmarks.docs import markdown
from benchmarks.long_runs import measure, some_prior
from metakel.tuner import Tuner

TRIALS = 5
BLOCK = 4096
PRIOR = some_prior()
Trials = Callable[[Path, int], list[float]]
Damage = Callable[[bytes, float], bytes]


def our_trials(path: Path, n: int) -> list[float]:
    """Values after n more trials."""
    tuner = Tuner(PRIOR, path)
    for _ in range(n):
        x = tuner.ask()
        tuner.tell(x, measure(x))
    return [float(trial.value or 0.0) for trial in tuner.trials.observed]


def _optuna_trials(storage: object, n: int) -> list[float]:
    study = optuna.create_study(storage=storage, study_name="s", load_if_exists=True)  # type: ignore[arg-type]
    study.optimize(lambda trial: trial.suggest_float("x", 0.1, 0.9) / 3, n_trials=n)
    return [float(trial.value) for trial in study.trials if trial.value is not None]


def journal_trials(path: Path, n: int) -> list[float]:
    """Of Optuna's journal file."""
    return _optuna_trials(JournalStorage(JournalFileBackend(str(path))), n)


def sqlite_trials(path: Path, n: int) -> list[float]:
    """Of Optuna's SQLite storage."""
    return _optuna_trials(f"sqlite:///{path}", n)


def cut(data: bytes, value: float) -> bytes:
    """The end is missing, as after a crash in the middle of a write."""
    return data[:-10]


def changed(data: bytes, value: float) -> bytes:
    """A digit of a value is another one, as by a bad disk or an editor."""
    stored = repr(value).encode()
    stored = stored if stored in data else struct.pack(">d", value)
    at = data.index(stored) + len(stored) - 4
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def removed(data: bytes, value: float) -> bytes:
    """The line of a value, or a block of a database, is missing."""
    stored = repr(value).encode()
    if stored not in data:
        return data[: len(data) // 2] + data[len(data) // 2 + BLOCK :]
    return b"".join(line for line in data.splitlines(keepends=True) if stored not in line)


def outcome(trials: Trials, damage: Damage, name: str) -> str:
    """What a user sees."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        before = trials(path, TRIALS)
        path.write_bytes(damage(path.read_bytes(), before[2]))
        try:
            read = trials(path, 0)
        except Exception as error:
            return f"refused: {type(error).__name__}"
        try:
            after = trials(path, 1)
        except Exception as error:
            return f"{len(read)} values are read; going on fails: {type(error).__name__}"
        if after[:TRIALS] == before:
            return "nothing is lost"
        if read == before[: len(read)]:
            return f"goes on after {len(read)} values"
        return "goes on with wrong values, unnoticed"


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    storages = {
        "metakel journal": (our_trials, "j.jsonl"),
        "Optuna journal file": (journal_trials, "j.log"),
        "Optuna SQLite": (sqlite_trials, "j.db"),
    }
    damages = {
        "last 10 bytes missing": cut,
        "one digit changed": changed,
        "a line or block removed": removed,
    }
    rows = [
        [what, *(outcome(trials, damage, name) for trials, name in storages.values())]
        for what, damage in damages.items()
    ]
    print(f"{TRIALS} trials, Optuna {optuna.__version__}\n")
    print(markdown(["damage", *storages], rows))


if __name__ == "__main__":
    main()
