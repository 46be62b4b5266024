"""docs/gallery.md: every example and notebook, executed, with what it printed and drew.

``make gallery``, or ``python docs/make_gallery.py``. It takes some minutes.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES, FRAMES = ROOT / "examples", ROOT / "docs" / "gallery"
HEAD = """\
# Gallery

Every example and notebook of the repository, as it runs: `make gallery` writes this page.
[Stories](../examples/stories/README.md) are longer, with other people's data.

## A report

`metakel report prior.json --journal run.jsonl` writes one page that needs nothing from the net.
This is one; scroll in it.

<iframe src="gallery/report.html" title="A report" class="frame" loading="lazy"></iframe>

## Notebooks
"""
STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem; color: #222; background: #fff; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: 13px; }
img { max-width: 100%; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1e2129; }
  pre { background: #2a2d36; }
}
"""


def title(text: str) -> str:
    """The first line of a docstring."""
    found = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(found.partition("\n\n")[0].split())


def run(path: Path) -> str:
    """What an example prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.rstrip()


def example(path: Path) -> str:
    """A section: what it is for, what it printed, and the program."""
    text = path.read_text(encoding="utf-8")
    return (
        f"### `{path.name}`\n\n{title(text)}\n\n```text\n{run(path)}\n```\n\n"
        f'<details markdown="1"><summary>The program</summary>\n\n'
        f"```py\n{text.rstrip()}\n```\n\n</details>\n"
    )


def shown(output: Any) -> str:
    """An output of a cell, as HTML."""
    data = output.get("data", {})
    if "text/html" in data:
        return str(data["text/html"])
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">'
    return f"<pre>{escape(output.get('text', data.get('text/plain', '')))}</pre>"


def notebook(path: Path) -> str:
    """A notebook that was run, in a frame of its own."""
    import nbclient
    import nbformat

    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        nbclient.NotebookClient(book, timeout=600, resources=where).execute()
    parts = [f"<!doctype html><meta charset=utf-8><title>{path.stem}</title><style>{STYLE}</style>"]
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts += [f"<p>{escape(line.lstrip('# '))}</p>" for line in cell.source.split("\n\n")]
            continue
        parts.append(f"<pre>{escape(cell.source)}</pre>")
        parts += [shown(output) for output in cell.outputs]
    (FRAMES / f"{path.stem}.html").write_text("\n".join(parts) + "\n", encoding="utf-8")
    first = book.cells[0].source.lstrip("# ").partition("\n")[0]
    frame = f'<iframe src="gallery/{path.stem}.html" title="{first}" class="frame" loading="lazy">'
    return f"### {first}\n\n`examples/notebooks/{path.name}`\n\n{frame}</iframe>\n"


def thinned(task: Any, step: int) -> Any:
    """Every so many runs of a task."""
    return replace(task, X=task.X[::step], y=task.y[::step])


def report() -> None:
    """The page of a run on a recorded data set."""
    import metakel as mk
    from metakel.report import replay_run, write_report

    history = mk.datasets.load_glmnet()
    new, *past = history.tasks
    prior = mk.learn_prior(replace(history, tasks=tuple(thinned(task, 10) for task in past[:12])))
    new = thinned(new, 5)
    rows = history.space.decode(new.X)
    tuner = mk.Tuner(prior, candidates=rows)
    for _ in range(12):
        x = tuner.ask()
        tuner.tell(x, float(new.y[rows.index(x)]))
    run = replay_run(prior, tuner.trials, tuner.options)
    write_report(prior, FRAMES / "report.html", run=run)


def main() -> None:
    FRAMES.mkdir(exist_ok=True)
    report()
    books = [notebook(path) for path in sorted((EXAMPLES / "notebooks").glob("*.ipynb"))]
    programs = [example(path) for path in sorted(EXAMPLES.glob("*.py"))]
    page = "\n".join([HEAD, *books, "## Examples\n", *programs])
    (ROOT / "docs" / "gallery.md").write_text(page.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
