"""What a rule of the linter looks at, and words that several of them use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.compiler.tiles import TileMap
from cmask_lab.masks.mask import Mask


@dataclass(frozen=True)
class Options:
    """What was said about the mask; see :func:`cmask_lab.compiler.check.check`."""

    causal: bool
    documents: ArrayLike | None
    library: str | None
    window: int | None
    grid: tuple[int, ...] | None
    heads: int


@dataclass(frozen=True)
class Problem:
    """A mask at its lengths, in intervals and in tiles, and what was said about it."""

    mask: Mask
    table: IntervalTable
    tiles: TileMap
    q_start: int
    options: Options

    @property
    def queries(self) -> Int64s:
        """Positions of the rows."""
        return np.arange(self.q_start, self.q_start + self.table.q_len)


def count(number: int, noun: str = "query", many: str = "queries") -> str:
    """A number with its noun.

    >>> count(1), count(2000)
    ('1 query', '2,000 queries')
    """
    return f"{number:,} {noun if number == 1 else many}"
