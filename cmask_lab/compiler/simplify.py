"""Intervals back to regions: a mask that came as a table, in the words that a person would have drawn it with.

Everything that is returned has been lowered and compared with the table: it shows exactly the same cells. What can't be
put into words stays as explicit intervals.
"""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import Any

import numpy as np

from cmask_lab.compiler.compose import boxes, compositions, compositions_of_parts, explicit
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.recognise import grid_guesses, guesses
from cmask_lab.masks.combinators import PerBatch, PerHead, per_batch, per_head
from cmask_lab.masks.mask import Mask

DEPTH = 3
"""Parts of parts that are looked into."""

MOST_DESCRIBED = 48
"""Parts that are looked into in one simplification; those after them are only guessed at."""

SHORT = 160
"""A description of at most so many characters ends the search, as does one of a hundredth of the explicit one."""

NODE_CHARACTERS = 14
"""What a node of a spec takes beside its fields: ``{"type": ""}, ``."""

SAMPLED_ROWS = 8
"""Rows on which a guess is tried before it is lowered whole."""


def simplify(
    mask: Mask | IntervalTable, q_len: int | None = None, kv_len: int | None = None, *, q_start: int = 0
) -> Mask:
    """A short mask that shows the same cells: causal, windows, documents, rectangles, grids, what else is recognised.

    Args:
        mask: a mask, or a table of intervals.
        q_len, kv_len, q_start: the window in which the result must show the same; outside it may differ. ``q_len`` is
            needed for a mask that has no end; a table brings its own lengths.

    Returns:
        The shortest description found; parts without one are explicit intervals. ``mask`` itself if nothing shorter
        is found.

    Raises:
        TypeError: neither a mask nor a table.
        ValueError: lengths that don't fit.

    >>> import cmask_lab as cm
    >>> dense = (cm.documents([2, 3]) & cm.causal()).to_dense(5)
    >>> simplify(cm.from_dense(dense))
    cm.documents([2, 3]) & cm.causal()
    """
    if isinstance(mask, IntervalTable):
        if (q_len, kv_len) not in ((None, None), (mask.q_len, mask.kv_len), (mask.q_len, None)):
            raise ValueError(
                f"simplify: the table has {mask.q_len} rows of {mask.kv_len} keys, and lengths {q_len}, {kv_len} are "
                f"given; leave them out"
            )
        return _Search().described(mask, q_start)
    if not isinstance(mask, Mask):
        raise TypeError(f"simplify: got {type(mask).__name__}; give a mask or an IntervalTable")
    if isinstance(mask, PerBatch):
        return per_batch([simplify(each, q_len, kv_len, q_start=q_start) for each in mask.masks])
    if isinstance(mask, PerHead):
        return per_head([simplify(each, q_len, kv_len, q_start=q_start) for each in mask.masks])
    q_len = mask.extent[0] if q_len is None else q_len
    if q_len is None:
        raise ValueError("simplify: the mask has no end; pass the q_len for which it is to be simplified")
    if kv_len is None and mask.extent[1] is not None:
        kv_len = max(mask.extent[1], q_start + q_len)
    found = _Search().described(mask.intervals(q_len, kv_len, q_start), q_start)
    return min(mask, found, key=size)


def size(mask: Mask) -> int:
    """How long a mask's description is: about the characters of its spec, counted without writing it.

    >>> import cmask_lab as cm
    >>> size(cm.window(4)) < size(cm.window(4) & cm.causal()) < size(cm.from_dense([[1, 0] * 20] * 2))
    True
    """
    length = len(mask.type) + NODE_CHARACTERS
    for each in dataclasses.fields(mask):
        value = getattr(mask, each.name)
        parts = value if isinstance(value, tuple) else (value,)
        length += len(each.name) + sum(_value_size(part) for part in parts)
    return length


def _value_size(value: Any) -> int:
    if isinstance(value, Mask):
        return size(value)
    if isinstance(value, np.ndarray):
        if value.dtype == np.bool_:
            return value.size + 4 * len(value)
        digits = np.floor(np.log10(np.maximum(np.abs(value), 1))) + 1
        return int(digits.sum()) + 2 * len(value)
    return len(str(value)) + 2


class _Search:
    """One simplification; remembers the parts that it has described, and looks into so many only."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, bytes], tuple[int, Mask]] = {}
        self._left = MOST_DESCRIBED

    def described(self, table: IntervalTable, q_start: int = 0, depth: int = DEPTH) -> Mask:
        """The shortest description found of a table whose first row stands at ``q_start``."""
        key = (table.q_len, table.kv_len, q_start, table.line.tobytes())
        looked, known = self._known.get(key, (-1, None))
        if known is not None and (looked >= depth or self._left <= 0):
            return known
        self._left -= 1
        found = self._best(table, q_start, depth if self._left >= 0 else 0)
        self._known[key] = depth, found
        return found

    def _best(self, table: IntervalTable, q_start: int, depth: int) -> Mask:
        """Guesses first, as they are short; then what is cheap to put together; parts of parts last."""

        def part(inner: IntervalTable) -> Mask:
            return self.described(inner, 0, depth - 1)

        looking = [guesses(table, q_start)]
        if q_start == 0:
            looking += [boxes(table, part)] if depth else []
            looking.append(grid_guesses(table))
        for guess in chain(*looking):
            if shows(guess, table, q_start):
                return guess
        best = explicit(table, q_start)
        enough = max(SHORT, size(best) // 100)
        looking = [compositions(table, q_start)]
        if q_start == 0 and depth:
            looking.append(compositions_of_parts(table, part, top=depth == DEPTH))
        for candidate in chain(*looking):
            if size(candidate) < size(best) and shows(candidate, table, q_start):
                best = candidate
            if size(best) <= enough:
                break
        return best


def shows(mask: Mask, table: IntervalTable, q_start: int = 0) -> bool:
    """Whether the mask shows exactly the table's cells; most wrong guesses fail on the first sampled row.

    >>> import cmask_lab as cm
    >>> shows(cm.causal(), IntervalTable.from_row_bounds([0, 0], [1, 2], kv_len=2))
    True
    """
    queries, keys = mask.extent
    if (keys or 0) > table.kv_len or (queries or 0) > q_start + table.q_len:
        return False
    if table.q_len > 8 * SAMPLED_ROWS:
        for row in np.linspace(table.q_len - 1, 0, SAMPLED_ROWS).astype(np.int64).tolist():
            if mask.intervals(1, table.kv_len, q_start + row).row(0).tolist() != table.row(row).tolist():
                return False
    return mask.intervals(table.q_len, table.kv_len, q_start) == table
