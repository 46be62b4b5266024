"""The recipes of CONTRIBUTING.md work as they are written."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import metakel as mk

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recipes():
    module = ModuleType("recipes")
    sys.modules["recipes"] = module
    for block in re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S):
        exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), vars(module))
    yield vars(module)
    del sys.modules["recipes"]


def test_a_base_kernel_is_learned_saved_and_loaded(recipes, tmp_path):
    rng, base = np.random.default_rng(0), recipes["periodic"](4, period=2.0)
    pairs = []
    for _ in range(12):
        X = rng.uniform(-1, 1, (20, 1))
        pairs.append((X, rng.normal() * np.sin(2 * np.pi * X[:, 0]) + 0.05 * rng.normal(size=20)))
    learned = mk.learn_kernel(mk.History.from_pairs(pairs), base, noise_std=0.05)
    assert learned.names == ("harmonic 2",)
    learned.kernel.save(tmp_path / "kernel.json")
    again = mk.KernelSum.load(tmp_path / "kernel.json")
    assert np.array_equal(again(X), learned.kernel(X))


def test_an_acquisition_decides(recipes):
    kernel = mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2"))
    band = mk.ConfidenceSequence(kernel, noise_std=0.1, norm_bound=2.0)
    search = mk.GPUCB(
        band,
        mk.grid([(-1, 1)], 41),
        rng=np.random.default_rng(0),
        acquisition=recipes["probability_of_improvement"],
    )
    for _ in range(4):
        x = search.ask()
        search.tell(x, float(x[0]))
    assert search.best().value > 0


def test_a_reader_gives_a_history(recipes, tmp_path):
    path = tmp_path / "runs.jsonl"
    rows = [{"plant": f"p{k % 3}", "heat": k / 7, "yield": (k - 9) ** 2} for k in range(21)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    table = recipes["read_lines"](path, task="plant", output="yield")
    assert mk.History.from_table(table, minimize=False).total == 21
