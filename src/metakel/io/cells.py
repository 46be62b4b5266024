"""Cells of a text file as numbers, without a Python object for each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from metakel.io.cleaning import MISSING, normalised
from metakel.io.columns import Mask, mix

# Longer cells are text.
LONGEST_NUMBER = 64
# From this many numbers on, a faster parser is worth its import.
MANY_ROWS = 4096
# A column with more shapes in a block is text.
MOST_SHAPES = 1000

# Numbers are recognised by their shape, which has 0 for every digit: a column of many numbers has
# few shapes.
_SHAPE = np.frombuffer(bytes.maketrans(b"123456789", b"000000000"), dtype=np.uint8)
_INTEGER_SHAPE = re.compile(r"[+-]?0+").fullmatch
_NUMBER_SHAPE = re.compile(r"[+-]?(0+\.?0*|\.0+)([eE][+-]?0+)?").fullmatch


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of one column, as positions in a buffer of UTF-8.

    The buffer has ``LONGEST_NUMBER`` bytes to spare, so that a window may begin at any cell.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Cells:
        encoded = [cell.encode() for cell in cells]
        lengths = np.array([len(cell) for cell in encoded], dtype=np.intp)
        return cls(padded(b"".join(encoded)), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def tolist(self) -> list[bytes]:
        """One by one."""
        if self.lengths.max() <= LONGEST_NUMBER:
            matrix = self._matrix()
            return list(matrix.view(f"S{matrix.shape[1]}")[:, 0].tolist())
        raw, ends = self.buffer.tobytes(), self.starts + self.lengths
        return [raw[i:j] for i, j in zip(self.starts.tolist(), ends.tolist(), strict=True)]

    def numbers(self) -> tuple[NDArray[Any], Mask] | None:
        """Whole numbers, else numbers, with a mask of those that are missing; None for text."""
        if self.lengths.max() > LONGEST_NUMBER:
            return None
        matrix = self._matrix()
        shaped = _SHAPE.take(matrix, mode="clip")
        hashes = _row_hashes(shaped)
        distinct = np.unique(hashes)
        if len(distinct) > MOST_SHAPES:
            return None
        rows = [shaped[np.argmax(hashes == value)] for value in distinct]
        shapes = [row.tobytes().rstrip(b"\0").decode() for row in rows]
        words = [shape for shape in shapes if not _NUMBER_SHAPE(shape)]
        if any(normalised(word) not in MISSING for word in words):
            if all(shape == shape.strip() for shape in shapes):
                return None
            return Cells.of(cell.decode().strip() for cell in self.tolist()).numbers()
        missing = np.isin(hashes, distinct[[shape in words for shape in shapes]])
        matrix[missing] = 0
        matrix[missing, 0] = ord("0")
        whole = all(_INTEGER_SHAPE(shape) for shape in shapes if shape not in words)
        values = _parsed(matrix, np.int64 if whole else np.float64)
        return None if values is None else (values, missing)

    def _matrix(self) -> NDArray[np.uint8]:
        """(n, longest) bytes of the cells, filled up with zeros."""
        width = 8 * max(1, -(-int(self.lengths.max()) // 8))
        found = sliding_window_view(self.buffer, width)[self.starts]
        inside = np.arange(width, dtype=np.uint8) < self.lengths.astype(np.uint8)[:, None]
        found *= inside.view(np.uint8)
        return found


def padded(raw: bytes) -> NDArray[np.uint8]:
    """A buffer for `Cells`."""
    return np.frombuffer(raw + bytes(LONGEST_NUMBER), dtype=np.uint8)


def _row_hashes(matrix: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """(n,) hashes of the rows of a matrix whose width is a multiple of eight."""
    hashes = np.zeros(len(matrix), dtype=np.uint64)
    for words in matrix.view(np.uint64).T:
        hashes = mix(hashes, words)
    return hashes


def _parsed(matrix: NDArray[np.uint8], dtype: type[np.generic]) -> NDArray[Any] | None:
    """Numbers of rows of bytes that have the shape of numbers; None if 64 bits are too few."""
    n, width = matrix.shape
    try:
        if n < MANY_ROWS:
            return matrix.view(f"S{width}")[:, 0].astype(dtype)
        # SciPy's Matrix Market reader rounds as exactly as `float` in a fraction of its time.
        from scipy.io import mmread  # slow to import

        lines = np.full((n, width + 1), ord("\n"), dtype=np.uint8)
        np.maximum(matrix, ord(" "), out=lines[:, :-1])
        lines[lines[:, 0] == ord("+"), 0] = ord(" ")
        field = "integer" if dtype is np.int64 else "real"
        header = f"%%MatrixMarket matrix array {field} general\n{n} 1\n"
        found: Any = mmread(BytesIO(header.encode() + lines.tobytes()))
        return np.asarray(found[:, 0], dtype=dtype)
    except (OverflowError, ValueError):
        return None
