"""One self-contained page: what was learned, how far to trust it, how a run went."""

from metakel.report.check import Check, check_history
from metakel.report.page import write_report
from metakel.report.replay import RunStory, follow

__all__ = ["Check", "RunStory", "check_history", "follow", "write_report"]
