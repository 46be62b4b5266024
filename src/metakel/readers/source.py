"""What a reader gives back: columns, and what the place they come from says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metakel.readers.assemble import Intake, assemble
from metakel.readers.frames import Columns
from metakel.readers.wanted import Wanted
from metakel.space import Space


@dataclass(frozen=True, eq=False)
class Source:
    """Columns of all tasks together.

    Parameters
    ----------
    name : str
        How reports call it.
    columns : dict of lists
    task, output : str
        Columns that name the task and hold what was measured.
    space : Space, optional
        The parameters, where the source knows them.
    minimize : bool
    failed : int
        Rows that were left out in reading.
    notes : tuple of str
        What else a report should say.
    """

    name: str
    columns: Columns
    task: str
    output: str
    space: Space | None = None
    minimize: bool = False
    failed: int = 0
    notes: tuple[str, ...] = ()

    def intake(self, **options: Any) -> Intake:
        """Its rows as numbers; ``options`` of `Wanted` count before what the source says."""
        said = {"space": self.space, "minimize": self.minimize, **options}
        wanted = Wanted(self.task, self.output, **said)
        return assemble(
            self.columns, wanted, source=self.name, failed=self.failed, notes=self.notes
        )
