"""What is known of a problem whose tasks are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metakel.grouplasso.batch import Batch
from metakel.grouplasso.evaluate import Evaluator

Array = NDArray[np.float64]


class ProblemSize(Protocol):
    """How much there is of everything: m tasks of some sizes, p groups, ``total`` observations."""

    @property
    def m(self) -> int: ...
    @property
    def p(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def dims(self) -> Sequence[int | None]: ...
    @property
    def sizes(self) -> NDArray[np.intp]: ...
    @property
    def task_weights(self) -> Array: ...


class Remote(ProblemSize, Protocol):
    """A problem whose tasks are elsewhere: only sums over them are known here."""

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Refused: coefficients and residuals stay where the tasks are."""
        ...

    def evaluator(self) -> Evaluator:
        """Who answers the solver."""
        ...

    def group_scores(self) -> Array:
        """(p,) squared norms of every group's correlation with the observations."""
        ...
