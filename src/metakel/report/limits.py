"""The page's part on a run with limits: what was measured, and how much is known to be safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metakel.charts import number
from metakel.optimize import Optimizer
from metakel.report.html import paragraph, table
from metakel.search import StartPoints
from metakel.tuner import JournalTrial
from metakel.tuner.options import RunLimits


@dataclass(frozen=True)
class SafeSet:
    """Limits of a run, and which share of the space was known to be safe.

    Parameters
    ----------
    limits : RunLimits
    shares : tuple of float
        Before the run and after every step that was looked at; empty without limits.
    """

    limits: RunLimits = field(default_factory=RunLimits)
    shares: tuple[float, ...] = ()

    def after(self, optimizer: Optimizer, start: StartPoints) -> SafeSet:
        """With the share at one more step."""
        if not self.limits:
            return self
        share = float(optimizer.model.safe(start.X).mean())
        return SafeSet(self.limits, (*self.shares, share))


def limits_part(output: str, trials: Sequence[JournalTrial], safe: SafeSet, delta: float) -> str:
    """A table of the limits; nothing for a run without limits."""
    if not safe.limits:
        return ""
    rows = []
    for name, allowed in safe.limits.ranges.items():
        found = [t.value if name == output else t.outputs.get(name) for t in trials]
        values = [value for value in found if value is not None]
        beyond = sum(not allowed.low <= value <= allowed.high for value in values)
        spread = f"{number(min(values))} to {number(max(values))}" if values else "never"
        rows.append((name, str(allowed), spread, str(beyond)))
    promise = (
        f"Known to be safe: {safe.shares[0]:.0%} of the space before the run, "
        f"{safe.shares[-1]:.0%} after it. All configurations that were asked for respect the "
        f"limits, with probability {1 - delta:g} for the whole run, if the learned "
        "kernels and noise levels hold for this task. This is about values without "
        "noise: a measurement slightly beyond a limit is no violation."
    )
    head = ("limited output", "allowed", "measured", "measured beyond")
    return paragraph(promise) + table(head, rows)
