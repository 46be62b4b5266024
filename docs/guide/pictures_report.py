"""Photograph the report for report.md: ``python docs/guide/pictures_report.py``.

Needs chromium and chromedriver, which it drives as the tests do.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import metakel as mk
from metakel.report import replay_run, write_report

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "img" / "guide"
sys.path.insert(0, str(ROOT / "tests" / "report"))
from chromium import chromium  # noqa: E402

NEW_TASK, STEPS, ROWS = "sonar", 12, 60
PARTS = {
    "report-run": "The run",
    "report-learned": "What was learned",
    "report-trust": "How far",
}


def some_rows(history: mk.History, rng: np.random.Generator) -> mk.History:
    """A history as people have it: a few rows of every task, without the new one."""
    tasks = []
    for task in history:
        chosen = np.sort(rng.choice(task.n, ROWS, replace=False))
        if task.name != NEW_TASK:
            tasks.append(mk.Task(task.X[chosen], task.y[chosen], task.name))
    return replace(history, tasks=tuple(tasks))


def write_page(path: Path) -> Path:
    """Learn from all data sets but one, tune that one among its recorded configurations."""
    everything = mk.datasets.load_glmnet()
    history = some_rows(everything, np.random.default_rng(0))
    prior = mk.learn_prior(history)
    new = next(task for task in everything if task.name == NEW_TASK)
    rows = prior.space.decode(np.clip(new.X, -1, 1))
    values = {tuple(row.values()): y for row, y in zip(rows, new.y.tolist(), strict=True)}
    tuner = mk.Tuner(prior, candidates=rows, budget=STEPS, task=NEW_TASK)
    for x in tuner:
        tuner.tell(x, values[tuple(x.values())])
    return write_report(
        prior,
        path,
        run=replay_run(prior, tuner.trials, tuner.options),
    )


def main() -> None:
    """One picture per section, and one of what stands above them."""
    folder = Path(tempfile.mkdtemp())
    page = write_page(folder / "report.html")
    with chromium(folder / "profile") as tab:
        tab.devtools("Emulation.setScrollbarsHidden", hidden=True)
        tab.show(page, width=1100)
        boxes = tab.run(
            "return [...document.querySelectorAll('section')].map(s => {"
            "const r = s.getBoundingClientRect();"
            "return [s.querySelector('h2').textContent, r.left, r.top, r.width, r.height]})"
        )
        run = next(box for box in boxes if box[0] == "The run")
        boxes.append(["Top", run[1], 0, run[3], run[2]])
        for name, title in {**PARTS, "report-top": "Top"}.items():
            _, x, y, width, height = next(box for box in boxes if box[0].startswith(title))
            clip = {"x": x - 8, "y": y, "width": width + 16, "height": height + 10, "scale": 1}
            shot = tab.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            (FOLDER / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
