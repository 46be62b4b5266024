"""What every test may ask for, and how many cases of other projects' suites we passed."""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# Tests start many processes. What these import is compiled once, outside of the source tree where
# nothing may be written there.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    compiled = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(compiled))
# No test depends on the speed of the machine.
hypothesis.settings.register_profile("metakel", deadline=None)
hypothesis.settings.load_profile("metakel")
# The core needs numpy and scipy. Where the package of an extra is absent, as in an environment of a
# packager, the files that import it are left out, and the summary says so.
EXTRAS = (
    "ax", "botorch", "celer", "cvxpy", "dask", "distributed", "gpytorch", "griffe", "joblib",
    "matplotlib", "mlflow", "nbclient", "nbformat", "openpyxl", "optuna", "pandas", "polars",
    "psutil", "pyarrow", "skglm", "sklearn", "torch", "tqdm", "typer",
)  # fmt: skip
ROOT = Path(__file__).parents[1]
LEFT_OUT: dict[str, list[str]] = {}
# Files of a few tests that take long. They come first: at the end, one worker would wait for them.
FIRST = ("test_torture", "test_notebooks", "test_stories", "test_examples", "test_demo")
HOST_SUITES = {
    "Optuna, optuna.testing.pytest_samplers": r"test_optuna_host\.py",
    "scikit-learn, parametrize_with_checks": r"test_sklearn_checks\.py",
    "scikit-learn, gaussian_process.tests": r"test_sklearn_kernel\.py.*accept",
    "GPyTorch, BaseKernelTestCase": r"test_gpytorch_host\.py",
}


@pytest.fixture(autouse=True)
def our_logger_stays_on() -> Iterator[None]:
    """Whoever switches our warnings off switches them on again: another test may wait for one.

    `RDBStorage.upgrade` of Optuna switches all loggers off, but creating or loading a study does
    not; so this is about tests, not about users of SQLite storages.
    """
    logger = logging.getLogger("metakel")
    yield
    found = (logger.disabled, logger.propagate, logger.level, logging.root.manager.disable)
    logger.disabled, logger.propagate = False, True
    logger.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)
    assert found == (False, True, logging.NOTSET, logging.NOTSET), "this test leaves it changed"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a test file out if loading it imports an extra that is not installed."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    for package in sorted(extras_of(collection_path)):
        if find_spec(package) is None:
            LEFT_OUT.setdefault(package, []).append(collection_path.name)
            return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip a test whose code, such as that of a page, imports an extra that is not installed."""
    try:
        return (yield)
    except ImportError as error:
        reasons = (error, error.__cause__, error.__context__)
        for name in (getattr(reason, "name", None) or "" for reason in reasons):
            package = name.partition(".")[0]
            if package in EXTRAS and find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
        raise


def extras_of(path: Path) -> set[str]:
    """The extras that are imported when a file is loaded, by itself or by our modules."""
    found: set[str] = set()
    seen, waiting = {path}, [path]
    while waiting:
        extras, ours = _loads(waiting.pop())
        found |= extras
        waiting += ours - seen
        seen |= ours
    return found


@cache
def _loads(path: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Extras and files of this repository that the imports at the top of a file name."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # "from a import b" may mean the module a.b
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    extras = frozenset(name.partition(".")[0] for name in names) & frozenset(EXTRAS)
    return extras, frozenset().union(*(_files(name, path.parent) for name in names))


@cache
def _files(name: str, beside: Path) -> frozenset[Path]:
    """The files of this repository that importing a name loads, packages included."""
    parts = name.split(".")
    folders = [f for f in (beside, ROOT, ROOT / "src") if _holds(f, parts[0])]
    starts = [Path(*parts[:length]) for length in range(1, len(parts) + 1)]
    return frozenset(
        file
        for folder in folders
        for start in starts
        for file in (folder / start.with_suffix(".py"), folder / start / "__init__.py")
        if file.is_file()
    )


@cache
def _holds(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()


def pytest_terminal_summary(terminalreporter):
    for package, files in LEFT_OUT.items():
        terminalreporter.write_line(f"{package} is not installed, left out: {', '.join(files)}")
    lines = []
    for suite, pattern in HOST_SUITES.items():
        counts = {
            outcome: sum(
                re.search(pattern, report.nodeid) is not None
                for report in terminalreporter.stats.get(outcome, [])
                if outcome == "skipped" or getattr(report, "when", "call") == "call"
            )
            for outcome in ("passed", "failed", "skipped")
        }
        if any(counts.values()):
            cases = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            lines.append(f"{suite}: {cases}")
    if lines:
        terminalreporter.section("suites of the hosts")
        for line in lines:
            terminalreporter.write_line(line)
