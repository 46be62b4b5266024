"""What was read and what was left out, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What was read and what was left out, so that nothing is dropped in silence."""

    source: str
    task: str
    output: str
    minimize: bool
    rows: int
    kept: int
    failed: int = 0
    missing_inputs: int = 0
    missing_tasks: int = 0
    duplicates: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "minimise" if self.minimize else "maximise"
        counted = {
            "failed or without a finite output": self.failed,
            "with a missing input": self.missing_inputs,
            "without a task": self.missing_tasks,
            "exact copies of another row": self.duplicates,
        }
        left_out = ", ".join(f"{count} {what}" for what, count in counted.items() if count)
        head = f"read {self.kept} of {self.rows} rows from {self.source} ({verb} {self.output})"
        lines = [head + (f"; left out: {left_out}" if left_out else "")]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
