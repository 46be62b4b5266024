"""The page itself: no file, font or script from elsewhere, so that it works offline."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from metakel._files import write_atomically
from metakel.charts import style_sheet
from metakel.confidence import AlarmEvent
from metakel.priors import Prior
from metakel.report.html import bar_widths, cards, paragraph, section, side_by_side
from metakel.report.model import model_section, validation_section
from metakel.report.run import RunReplay, about, headline, next_section, run_section

# Even if something slipped through, a browser would run and fetch nothing: only this very style and
# script are allowed, by their digests.
POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(
    prior: Prior,
    path: str | Path,
    *,
    run: RunReplay | None = None,
    title: str = "",
    sources: Mapping[str, str] | None = None,
) -> Path:
    """Write one self-contained HTML page.

    Parameters
    ----------
    prior : Prior
    path : path
    run : RunReplay, optional
        Of `replay_run`: adds how one run went.
    title : str
        By default what is tuned, and the name of the task.
    sources : dict, optional
        What else to say about where it comes from, such as names of files.
    """
    target = Path(path)
    page = render_report(prior, run=run, title=title, sources=sources)
    write_atomically(target, page)
    return target


@dataclass(frozen=True)
class EmbeddedReport:
    """The page in a frame of its own, so that it changes nothing of the notebook around it."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        look = "width:100%;border:1px solid rgba(128,128,128,.4);border-radius:6px"
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" style="{look}" '
            f'height="{int(self.height)}" title="metakel report" '
            f'srcdoc="{escape(self.page, quote=True)}"></iframe>'
        )


def embed_report(
    prior: Prior,
    *,
    run: RunReplay | None = None,
    title: str = "",
    height: int = 700,
) -> EmbeddedReport:
    """The page for a notebook, which shows what this returns; ``height`` is in pixels."""
    page = render_report(prior, run=run, title=title)
    return EmbeddedReport(page, height)


def render_report(
    prior: Prior,
    *,
    run: RunReplay | None = None,
    title: str = "",
    sources: Mapping[str, str] | None = None,
) -> str:
    """The page as text; see `write_report`."""
    task = "" if run is None else run.about.get("task", "")
    heading = title or f"Tuning {prior.info.output}{f' of {task}' if task else ''}"
    body = "".join(
        [
            f"<h1>{escape(heading)}</h1>",
            about(prior, run, sources or {}),
            *_top(prior, run),
            run_section(prior, run) if run is not None else "",
            model_section(prior),
            validation_section(prior),
            _notes(prior),
            "<footer>Made by metakel. This page needs no network.</footer>",
        ]
    )
    return _page(heading, body)


def _top(prior: Prior, run: RunReplay | None) -> list[str]:
    """What was found beside what to try next; the numbers stand where there is room."""
    found, after = headline(prior, run), next_section(prior, run)
    summary = _summary(prior, None if run is None else run.alarm)
    if found and after:
        return [side_by_side(found + summary, after)]
    return [side_by_side(found, after), summary]


def _summary(prior: Prior, alarm: AlarmEvent | None) -> str:
    info, held = prior.info, prior.heldout
    better = f"{held.better_than_cold} of {len(held.log_scores)}"
    entries = [
        (str(len(info.tasks)), "past tasks", ""),
        (str(info.runs), "runs of them", ""),
        ("used", "the history", "good") if prior.helps else ("not used", "the history", "bad"),
    ]
    if alarm is not None:
        entries.insert(0, ("ALARM", "see below", "bad"))
    if held.checked:
        entries.append((better, "left-out tasks predicted better than cold", ""))
    return cards(entries)


def _notes(prior: Prior) -> str:
    info = prior.info
    lines = list(info.notes)
    if info.constant:
        lines.append(f"constant values, not learned from: {', '.join(info.constant)}")
    if info.winsorized:
        lines.append(f"{info.winsorized} very bad values were replaced by less extreme ones")
    if not lines:
        return ""
    return section("What was noticed in the data", *(paragraph(line, "soft") for line in lines))


def _page(title: str, body: str) -> str:
    here = files("metakel.report")
    style = style_sheet() + bar_widths() + (here / "page.css").read_text(encoding="utf-8")
    script = (here / "page.js").read_text(encoding="utf-8")
    policy = POLICY.format(style=_digest(style), script=_digest(script))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f'<style>{style}</style></head><body>{body}<div id="tip" role="tooltip"></div>'
        f"<script>{script}</script></body></html>\n"
    )


def _digest(content: str) -> str:
    """As a policy names what may stand in the page."""
    found = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(found).decode()}"
