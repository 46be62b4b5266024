"""One self-contained page: what was learned, how far to trust it, how a run went."""

from metakel.report.page import EmbeddedReport, embed_report, render_report, write_report
from metakel.report.run import RunReplay, replay_journal, replay_run

__all__ = [
    "EmbeddedReport",
    "RunReplay",
    "embed_report",
    "render_report",
    "replay_journal",
    "replay_run",
    "write_report",
]
