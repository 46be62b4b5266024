"""What a reader gives back: columns, and what the place they come from says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from metakel.errors import InputError
from metakel.io.encoding import Intake, assemble
from metakel.io.frames import Columns
from metakel.io.missing import finite, without_holes
from metakel.io.schema import OPTIONS, Wanted
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
    lines : tuple of int, optional
        The lines of a file that the rows stand in.
    clashes : dict of str
        Why a parameter is not in the space, though a column has its name.
    """

    name: str
    columns: Columns
    task: str
    output: str
    space: Space | None = None
    minimize: bool = False
    failed: int = 0
    notes: tuple[str, ...] = ()
    lines: tuple[int, ...] | None = None
    clashes: Mapping[str, str] = field(default_factory=dict)

    def intake(self, **options: Any) -> Intake:
        """Its rows as numbers; ``options`` of `Wanted` count before what the source says."""
        unknown = [name for name in options if name not in OPTIONS]
        if unknown:
            raise InputError(
                f"History.from_frame and the other readers have no option {unknown[0]!r}; "
                f"expected {', '.join(OPTIONS)}"
            )
        wanted = Wanted(self.task, self.output, **{"minimize": self.minimize, **options})
        notes = self.notes
        if self.space is not None and wanted.space is None:
            space, left_out = self._known(self.space, wanted)
            wanted, notes = replace(wanted, space=space), (*notes, *left_out)
        return assemble(
            self.columns,
            wanted,
            source=self.name,
            failed=self.failed,
            notes=notes,
            place=self.place,
        )

    def _known(self, space: Space, wanted: Wanted) -> tuple[Space, tuple[str, ...]]:
        """The parameters to learn from, of those that the source knows, and notes on others."""
        named = [*self.clashes, *space.names] if wanted.inputs is None else wanted.inputs
        for name in named:
            if name in self.clashes:
                raise InputError(self.clashes[name])
        if wanted.inputs is not None:
            known = [space[name] for name in wanted.inputs if name in space.names]
            return Space(tuple(known)) if known else space, ()
        rows = [i for i, value in enumerate(self.columns[self.output]) if finite(value)]
        return without_holes(space, self.columns, rows, wanted.defaults)

    def place(self, row: int) -> str:
        """Where a row is to be found."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]} of {self.name}"
