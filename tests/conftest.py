"""What every test may ask for, and how many cases of other projects' suites we passed."""

from __future__ import annotations

import re

import numpy as np
import pytest

HOST_SUITES = {
    "Optuna, optuna.testing.pytest_samplers": r"test_optuna_host\.py",
    "scikit-learn, parametrize_with_checks": r"test_sklearn_checks\.py",
    "scikit-learn, gaussian_process.tests": r"test_sklearn_kernel\.py.*accept",
    "GPyTorch, BaseKernelTestCase": r"test_gpytorch_host\.py",
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def pytest_terminal_summary(terminalreporter):
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
