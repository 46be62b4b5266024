"""``metakel paper``: list, one command per figure, all, gallery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid

from metakel.errors import InputError
from reproduction import FIGURES
from reproduction.drawing import draw
from reproduction.figure import Figure, Measured, load_figure, shown
from reproduction.gallery import verdict, write_gallery
from reproduction.runner import new_workers, run

app = typer.Typer(no_args_is_help=True, help="The figures of the paper, each by one command.")
console = Console()

Quick = Annotated[bool, typer.Option("--quick", help="Small size: seconds instead of minutes.")]
Runs = Annotated[int | None, typer.Option(help="Number of runs instead of the paper's.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Jobs = Annotated[
    str,
    typer.Option(
        help="Processes, -1 for one per core; or dask://host:port, the address of a Dask "
        "scheduler whose workers have this version of metakel."
    ),
]
Out = Annotated[Path, typer.Option(help="Where results are kept (and resumed from).")]
Readings = Annotated[
    list[str] | None,
    typer.Option("--reading", help="resolved, literal or signed; may be given several times."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard results that are there.")]
TablePath = Annotated[
    str, typer.Option("--table", help="fig6-right: the published table instead of the bundled one.")
]
Docs = Annotated[Path, typer.Option(help="Where paper.md and img/paper/ are written.")]

OUT = Path("out/paper")


def _list() -> None:
    """Show the figures."""
    grid = Grid("figure", "what it shows", "runs", "readings", box=None)
    for name in FIGURES:
        figure = load_figure(name)
        grid.add_row(name, figure.title, _count(figure), ", ".join(figure.readings))
    console.print(grid)


def _count(figure: Figure) -> str:
    runs, draws = figure.settings.runs, figure.settings.draws
    return f"{draws} x {runs}" if draws > 1 else str(runs)


def _command(*names: str, every: bool = False) -> Callable[..., None]:
    """A command that runs these figures; ``every``: in all their readings unless told otherwise."""

    def command(
        quick: Quick = False,
        runs: Runs = None,
        seed: Seed = 0,
        jobs: Jobs = "-1",
        out: Out = OUT,
        reading: Readings = None,
        fresh: Fresh = False,
        table: TablePath = "",
    ) -> None:
        folder = out / "quick" if quick else out
        for name in names:
            figure = load_figure(name)
            wanted = reading or (figure.readings if every else figure.readings[:1])
            for each in wanted:
                if every and each not in figure.readings:
                    continue
                settings = figure.configured(each, quick=quick, runs=runs)
                if table and hasattr(settings, "table"):
                    settings = replace(settings, table=table)  # type: ignore[call-arg]
                store = run(
                    name, settings, seed=seed, out=folder, jobs=jobs, fresh=fresh, progress=True
                )
                results = store.table(settings)
                picture = store.folder / "figure.png"
                draw(figure, results, settings, picture)
                _report(name, figure, each, figure.measure(results))
                about = store.description()
                spent = f"{about['seconds']:.0f} s, {about['memory'] / 1e9:.2f} GB in all processes"
                console.print(f"[dim]{picture} ({spent})[/dim]\n")
            if every:
                new_workers()
        if every:
            console.print(f"gallery: {write_gallery(folder, folder, quick=quick)}")

    return command


def _report(name: str, figure: Figure, reading: str, measured: Measured) -> None:
    grid = Grid("", "expected", "measured", "", box=None, title=f"{name}, {reading} reading")
    for claim in figure.claims:
        holds = verdict(claim, {reading: measured})
        color = {"holds": "green", "–": "dim"}.get(holds, "red")
        number = shown(measured, claim.key)
        grid.add_row(claim.text, claim.bound, number, f"[{color}]{holds}[/{color}]")
    console.print(grid)


def _gallery(out: Out = OUT, docs: Docs = Path("docs"), quick: Quick = False) -> None:
    """Write the gallery docs/paper.md from saved results."""
    folder = out / "quick" if quick else out
    if not folder.exists():
        raise InputError(f"{folder} does not exist; run `metakel paper all` first")
    console.print(str(write_gallery(folder, docs, quick=quick)))


app.command("list")(_list)
for _name in FIGURES:
    app.command(_name, help=f"Figure {_name}.")(_command(_name))
app.command("fig6", help="Both halves of Figure 6.")(_command("fig6-left", "fig6-right"))
app.command("all", help="Every figure in every reading.")(_command(*FIGURES, every=True))
app.command("gallery")(_gallery)
