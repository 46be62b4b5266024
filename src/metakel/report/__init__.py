"""One self-contained page: what was learned, how far to trust it, how a run went."""

from metakel.report.page import EmbeddedReport, embed_report, render_report, write_report
from metakel.report.run import RunReplay, replay_journal, replay_run
from metakel.report.validation import Validation, validate_history

__all__ = [
    "EmbeddedReport",
    "RunReplay",
    "Validation",
    "embed_report",
    "render_report",
    "replay_journal",
    "replay_run",
    "validate_history",
    "write_report",
]
