"""The scale of an output, shares or per cent: past tasks decide it, not how a value is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from metakel._arrays import is_number
from metakel.errors import Hint, InputError
from metakel.io.words import is_share

SLACK = 0.1  # of the range of the output: so far beyond it a value may be noise
NEAR = 2.0  # times the usual values, a value may be one of them

CONFIRM = Hint("if it was measured, say so", "confirmed=True", "--confirm")


@dataclass(frozen=True)
class Scale:
    """On which scale an output is.

    Parameters
    ----------
    output : str
    ends : pair of float
        Between which all values lie; infinite where that is not known.
    usual : pair of float or None
        From a middling value to the best of past tasks, where they are known.
    """

    output: str
    ends: tuple[float, float] = (-inf, inf)
    usual: tuple[float, float] | None = None

    @classmethod
    def of_journal(cls, header: Mapping[str, Any]) -> Scale:
        """That of the prior that a journal was begun with."""
        ends: Sequence[float] = header.get("output_range") or (-inf, inf)
        usual = header.get("usual")
        return cls(header["output"], (ends[0], ends[1]), usual and (usual[0], usual[1]))

    @property
    def shares(self) -> bool:
        """Whether past tasks have 0.67 for 67 %."""
        return self.usual is not None and "%" not in self.output and 0 < self.usual[1] <= 1

    def read(self, number: float, cell: Any, *, confirmed: bool = False) -> float:
        """The value that a cell means, in which this number stands.

        With a per cent sign, it is taken to the scale of past tasks. Without one, it is refused
        where it is on the other scale, unless it is ``confirmed``.
        """
        signed = isinstance(cell, str) and "%" in cell
        value = self._share(number, cell) if signed and self.shares else number
        if not confirmed:
            if not signed:
                self._refuse_per_cent_for_shares(value)
                self._refuse_share_for_per_cent(value)
            self.refuse_slip(value)
        return value

    def _share(self, number: float, cell: Any) -> float:
        """A number before a per cent sign, where past tasks have values up to 1.

        They are shares, unless it is some impurity, of which 0.4 % may have been read as 0.4.
        """
        share = float(f"{number / 100:.15g}")
        if is_share(self.output) or (self.usual is not None and number > NEAR * self.usual[1]):
            return share
        if self._is_usual(number):
            return number
        raise InputError(
            f"{self.output} is {cell!r}, which may be {number:g} or {share:g}, and {self._past}; "
            "expected one of the two, without a per cent sign"
        )

    def _refuse_per_cent_for_shares(self, value: float) -> None:
        if self.shares and is_share(self.output) and 1 + SLACK < value <= 100 * (1 + SLACK):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so shares are expected: write "
                f"{value / 100:g} or '{value:g} %'",
                CONFIRM,
            )

    def _refuse_share_for_per_cent(self, value: float) -> None:
        if self.usual is None or self.shares or not is_share(self.output):
            return
        if 0 < value < 1 and self._is_usual(100 * value) and not self._is_usual(value):
            raise InputError(
                f"{self.output} is {value:g}, and {self._past}, so per cent are expected: write "
                f"{100 * value:g}, or '{value:g} %' if it is as little as that",
                CONFIRM,
            )

    def _is_usual(self, value: float) -> bool:
        low, high = self.usual or (inf, -inf)
        return low / NEAR <= value <= NEAR * high

    @property
    def _past(self) -> str:
        low, high = self.usual or (-inf, inf)
        return f"past tasks have {low:.3g} to {high:.3g}" if low < high else f"past {low:.3g}"

    def refuse_slip(self, value: Any) -> None:
        """A yield of 101 % is noise; one of 690 % is a slip. What is not finite has failed."""
        low, high = self.ends
        if not isfinite(high - low) and self.shares and is_share(self.output):
            low, high = 0.0, 1.0
        slack = SLACK * (high - low)
        if not (is_number(value) and isfinite(value) and isfinite(slack)):
            return
        if not low - slack < value < high + slack:
            raise InputError(
                f"{self.output} is {value:g}, far beyond its range of {low:g} to {high:g}; "
                "expected a value within it",
                CONFIRM,
                Hint(
                    "if it has another range, learn so",
                    "output_range=(low, high)",
                    "--output-range",
                ),
            )
