"""``docs/paper.md`` from saved results: every figure, what it claims, and whether that holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from reproduction import FIGURES
from reproduction.drawing import draw
from reproduction.figure import Claim, Figure, Measured, load_figure, shown
from reproduction.settings import ExperimentSettings
from reproduction.store import Store

OWN = "Not in the paper."
NOT_JUDGED = "not judged (quick size)"
SYMBOLS = {
    "p": "p",
    "sparsity": "|J*|",
    "m": "m",
    "n": "n",
    "norm": "B",
    "noise_std": "σ",
    "lam": "λ",
    "delta": "δ",
    "horizon": "T",
    "grid": "grid points per input",
    "nu": "ν",
    "noise_var": "regulariser",
}


@dataclass(frozen=True)
class Outcome:
    """A figure in one reading, from disk."""

    settings: ExperimentSettings
    measured: Measured
    seed: int
    seconds: float
    picture: str


def write_gallery(
    out: str | Path, docs: str | Path, names: Sequence[str] = tuple(FIGURES), *, quick: bool = False
) -> Path:
    """Write ``paper.md`` and its pictures into ``docs``, for all figures that ``out`` has."""
    target = Path(docs)
    (target / "img" / "paper").mkdir(parents=True, exist_ok=True)
    size = " (quick size: too small to judge by)" if quick else ""
    intro = Path(__file__).with_name("gallery.md").read_text(encoding="utf-8")
    parts, rows = [intro.replace("{size}", size)], []
    for name in names:
        figure = load_figure(name)
        outcomes = _outcomes(name, figure, Path(out), target)
        if outcomes:
            parts.append(_section(name, figure, outcomes, quick=quick))
            seconds = sum(outcome.seconds for outcome in outcomes.values())
            judged = NOT_JUDGED if quick else overall(figure, _numbers(outcomes))
            rows.append(f"| [{name}](#{name}) | {figure.title} | {judged} | {seconds:.0f} s |")
    head = (
        "| figure | what it shows | claims of the paper | time, all readings |\n|---|---|---|---|\n"
    )
    page = target / "paper.md"
    page.write_text("\n".join([parts[0], head + "\n".join(rows), "", *parts[1:]]), encoding="utf-8")
    return page


def verdict(claim: Claim, measured: Mapping[str, Measured]) -> str:
    """Whether a claim holds, and in which readings."""
    if not claim.bounded:
        return "–"
    states = {name: claim.state(numbers) for name, numbers in measured.items()}
    words = [word for word in ("holds", "undecided", "fails") if word in states.values()]
    if len(words) == 1:
        return words[0]
    named = {word: [n for n, state in states.items() if state == word] for word in words}
    return ", ".join(f"{word} in {' and '.join(names)}" for word, names in named.items())


def overall(figure: Figure, measured: Mapping[str, Measured]) -> str:
    """The verdict on what the paper says with a figure."""
    said = [claim for claim in figure.claims if claim.said]
    if figure.caption.startswith(OWN):
        return "our own figure"
    if not said:
        return "illustration"
    states = {name: [claim.state(m) for claim in said] for name, m in measured.items()}
    here = states["resolved"]
    if set(here) == {"holds"}:
        others = set(states.get("literal", here)) == {"holds"}
        return "holds" if others else "holds in the resolved reading only"
    words = {"holds": "hold", "undecided": "undecided", "fails": "fail"}
    counted = [f"{here.count(state)} {word}" for state, word in words.items() if state in here]
    return f"of {len(said)} claims in the resolved reading, {', '.join(counted)}"


def _outcomes(name: str, figure: Figure, out: Path, target: Path) -> dict[str, Outcome]:
    found = {}
    for reading in figure.readings:
        store = Store(out / name / reading)
        if not store.complete:
            continue
        settings = store.settings(type(figure.settings))
        table = store.table(settings)
        picture = f"img/paper/{name}-{reading}.png"
        draw(figure, table, settings, target / picture)
        shrink(target / picture)
        measured = figure.measure(table)
        about = store.description()
        found[reading] = Outcome(settings, measured, about["seed"], about["seconds"], picture)
    return found


def shrink(picture: Path) -> None:
    """Store a picture with 96 colours: a quarter of the size, no visible difference."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(96)
    small.save(picture, optimize=True)


def _numbers(outcomes: Mapping[str, Outcome]) -> dict[str, Measured]:
    return {reading: outcome.measured for reading, outcome in outcomes.items()}


def settings_line(figure: Figure) -> str:
    """Every number that the figure depends on, and how its points are chosen."""
    known = {field.name for field in fields(ExperimentSettings)}
    values = {field.name: getattr(figure.settings, field.name) for field in fields(figure.settings)}
    shown_names = [n for n in values if (n in SYMBOLS or n not in known) and values[n] != ""]
    parts = [f"{SYMBOLS.get(name, name)} = {_value(values[name])}" for name in shown_names]
    return "; ".join(filter(None, [", ".join(parts), figure.rule]))


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_value, value)) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _section(
    name: str, figure: Figure, outcomes: Mapping[str, Outcome], *, quick: bool = False
) -> str:
    first = next(iter(outcomes.values()))
    count = f"{first.settings.runs} runs"
    if first.settings.draws > 1:
        thing = "test tasks" if name == "fig6-right" else "true kernels"
        count = f"{first.settings.draws} {thing} x {count}"
    lines = [
        f"## {name}",
        "",
        f"**{figure.title}.** {count} in each reading, seed {first.seed}.",
        "",
    ]
    label = "About" if figure.caption.startswith(OWN) else "The paper"
    caption = figure.caption.removeprefix(OWN).strip()
    lines += [f"{label}: {_plain(caption)}", "", f"Settings: {_plain(settings_line(figure))}.", ""]
    for reading, outcome in outcomes.items():
        lines += [f"![{figure.title}, {reading} reading]({outcome.picture})", ""]
        command = f"metakel paper {name} --reading {reading}"
        lines += [f"*{reading} reading*: `{command}`, {outcome.seconds:.0f} s", ""]
    judged = NOT_JUDGED if quick else overall(figure, _numbers(outcomes))
    lines += [*_claims(figure, outcomes, quick=quick), ""]
    lines += [f"Verdict: **{judged}**. {_plain(figure.comment)}", ""]
    return "\n".join(lines)


def _claims(figure: Figure, outcomes: Mapping[str, Outcome], *, quick: bool) -> list[str]:
    head = "| | expected | " + " | ".join(outcomes) + " | |"
    lines = [head, "|---" * (len(outcomes) + 3) + "|"]
    for claim in figure.claims:
        values = " | ".join(shown(outcome.measured, claim.key) for outcome in outcomes.values())
        kind = "claim" if claim.said else "observed"
        text = _plain(claim.text).replace("|", "\\|")
        state = "–" if quick else verdict(claim, _numbers(outcomes))
        lines.append(f"| *{kind}*: {text} | {claim.bound} | {values} | {state} |")
    return lines


def _plain(text: str) -> str:
    """Markdown that shows the star of k* as it is."""
    return text.replace("*", "\\*")
