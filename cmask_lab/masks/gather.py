"""A mask with its queries and keys gathered: permuted, repeated, or a part of them.

Rows are gathered as they are. Keys take one of two ways, whichever has less to do:

- through *stretches*: the list of keys falls into stretches that rise or fall by one, and every interval is carried
  through the stretches that it meets (good for few stretches: a rotation, a shard, a cut);
- through the *transposed* table, in which keys are rows (good for masks whose neighbouring rows are alike, however
  much the keys are shuffled: causal, documents, grids in patches).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cmask_lab.compiler.intervals import Bools, Int64s, IntervalTable, ragged_range
from cmask_lab.masks.arguments import integers
from cmask_lab.masks.mask import Bounds, Extent, Mask, Support, Window, bracketed, clipped, moved

PIECES_AT_A_TIME = 1 << 21
"""Pieces of intervals that are carried in one go: some 200 MB of working memory."""

FEW_PIECES = 4
"""Pieces to an interval up to which the transposed way isn't even looked at."""


@dataclass(frozen=True, eq=False, repr=False)
class Take(Mask):
    """Queries and keys gathered."""

    mask: Mask
    q: Int64s | None
    k: Int64s | None

    type = "take"

    @property
    def _children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def _extent(self) -> Extent:
        queries, keys = self.mask.extent
        return queries if self.q is None else len(self.q), keys if self.k is None else len(self.k)

    @property
    def _formula(self) -> str:
        axes = (("i", "σ", self.q), ("j", "τ", self.k))
        moves = [f"{axis} → {order}({axis})" for axis, order, index in axes if index is not None]
        return f"{bracketed(self.mask)} with {', '.join(moves)}"

    @property
    def _support(self) -> Support:
        inner = self.mask._support
        q0, q1 = (inner.q0, inner.q1) if self.q is None else (0, len(self.q))
        k0, k1 = (inner.k0, inner.k1) if self.k is None else (0, len(self.k))
        return Support(q0, q1, k0, k1)

    @property
    def _single(self) -> bool:
        return self.k is None and self.mask._single

    def _row_bounds(self, window: Window) -> Bounds:
        index = self._queries(window)
        low, high = np.zeros((2, window.q_len), np.int64)
        if len(index):
            first = int(index.min())
            inner = self.mask._row_bounds(Window(first, int(index.max()) + 1 - first, window.kv_len))
            low[: len(index)], high[: len(index)] = (side[index - first] for side in inner)
        return low, high

    def _estimate(self, window: Window) -> int:
        inner = self.mask._estimate(window)
        return inner if self.k is None else inner + window.q_len * len(self._stretches.key)

    def _queries(self, window: Window) -> Int64s:
        """The inner queries of the window's rows; rows behind the last have none."""
        assert self.q is not None
        return self.q[window.q_start : window.q_stop]

    @cached_property
    def _stretches(self) -> _Stretches:
        assert self.k is not None
        return _Stretches.of(self.k)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return super()._lower(window, bounds)
        if self.k is None:
            return clipped(self._rows_taken(window), bounds)
        # Keys first: the rows of the inner mask are alike where they are neighbours.
        inner_keys = int(self.k.max()) + 1
        if self.q is None:
            table = self.mask._lower(window._replace(kv_len=inner_keys))
            return clipped(_keys_taken(table, self.k, self._stretches, window.kv_len), bounds)
        table, place = self._wanted(window._replace(kv_len=inner_keys))
        carried = _keys_taken(table, self.k, self._stretches, window.kv_len)
        return clipped(moved(carried.take_rows(place), 0, 0, window), bounds)

    def _rows_taken(self, window: Window) -> IntervalTable:
        table, place = self._wanted(window)
        return moved(table.take_rows(place), 0, 0, window)

    def _wanted(self, window: Window) -> tuple[IntervalTable, Int64s]:
        """The inner rows that the window needs, ascending, and which of them each row of the window is."""
        index = self._queries(window)
        wanted = np.unique(index)
        if not len(wanted):
            return IntervalTable.empty(0, window.kv_len), index
        # They often lie in a few stretches (the shard of one device, the queries of one step): lower those alone.
        gaps = np.flatnonzero(np.diff(wanted) > max(64, len(wanted) // 16)) + 1
        parts = [
            self.mask._lower(Window(int(rows[0]), int(rows[-1] - rows[0]) + 1, window.kv_len))
            for rows in np.split(wanted, gaps)
        ]
        first = wanted[np.append(0, gaps)]
        rows_before = np.cumsum([0] + [part.q_len for part in parts[:-1]])
        part = np.searchsorted(first, index, "right") - 1
        return IntervalTable.concatenate(parts), index - first[part] + rows_before[part]

    def _code(self) -> str:
        axes = [f"{axis}={index.tolist()}" for axis, index in (("q", self.q), ("k", self.k)) if index is not None]
        return f"{self.mask._inner_code()}.take({', '.join(axes)})"


def take(mask: Mask, q: Any, k: Any) -> Take:
    """``mask.take(q=q, k=k)``, checked.

    >>> import cmask_lab as cm
    >>> take(cm.causal(), [2, 1], None)
    cm.causal().take(q=[2, 1])
    """
    if q is None and k is None:
        raise TypeError("take: neither q nor k given; give the positions to gather for at least one of them")
    return Take(
        mask,
        None if q is None else integers(q, "take: q", "position"),
        None if k is None else integers(k, "take: k", "position"),
    )


class _Stretches(NamedTuple):
    """A list of positions as stretches that rise or fall by one.

    Sorted by position, and cut so that any two of them hold the same positions or have none in common.
    """

    key: Int64s
    """The smallest position of each; ascending."""
    size: Int64s
    place: Int64s
    """Where in the list it begins."""
    falls: Bools
    """Whether the list falls along it."""

    @classmethod
    def of(cls, index: Int64s) -> _Stretches:
        step = np.diff(index)
        # A stretch goes on while the step stays the same +1 or -1.
        goes_on = np.abs(step) == 1
        goes_on[1:] &= (step[1:] == step[:-1]) | ~goes_on[:-1]
        start = np.append(0, np.flatnonzero(~goes_on) + 1)
        size = np.diff(np.append(start, len(index)))
        falls = (np.append(step, 1)[start] == -1) & (size > 1)
        key = np.where(falls, index[start] - size + 1, index[start])
        # Cut every stretch where another one begins or ends.
        edges = np.unique(np.concatenate([key, key + size]))
        first, last = np.searchsorted(edges, key), np.searchsorted(edges, key + size)
        source = np.repeat(np.arange(len(key)), last - first)
        edge = ragged_range(first, last - first)
        begin, end = edges[edge], edges[edge + 1]
        inside = np.where(falls[source], (key + size)[source] - end, begin - key[source])
        by_key = np.argsort(begin, kind="stable")
        cut = (begin, end - begin, start[source] + inside, falls[source])
        return cls(*(part[by_key] for part in cut))


def _keys_taken(table: IntervalTable, index: Int64s, stretches: _Stretches, kv_len: int) -> IntervalTable:
    """Key ``j`` of the result is key ``index[j]`` of the table."""
    same = _like_row_before(table)
    distinct = table.take_rows(np.flatnonzero(~same))
    copies = np.cumsum(~same) - 1
    first = np.searchsorted(stretches.key + stretches.size, distinct.start, "right")
    pieces = np.maximum(np.searchsorted(stretches.key, distinct.stop, "left") - first, 0)
    if pieces.sum() > FEW_PIECES * (distinct.count + len(index)) and _changes(distinct) < pieces.sum():
        return distinct.transpose().take_rows(index).transpose().shift(0, kv_len).take_rows(copies)
    row_pieces = np.append(0, np.cumsum(pieces))[distinct.row_ptr]
    parts, row = [IntervalTable.empty(0, kv_len)], 0
    while row < distinct.q_len:
        end = int(np.searchsorted(row_pieces, row_pieces[row] + PIECES_AT_A_TIME, "right")) - 1
        end = min(max(end, row + 1), distinct.q_len)
        parts.append(_carried(distinct, row, end, first, pieces, stretches, kv_len))
        row = end
    return IntervalTable.concatenate(parts).take_rows(copies)


def _carried(
    table: IntervalTable, row: int, end: int, first: Int64s, pieces: Int64s, stretches: _Stretches, kv_len: int
) -> IntervalTable:
    """The rows ``[row, end)``: interval ``n`` meets ``pieces[n]`` stretches from number ``first[n]`` on."""
    begin, stop = table.row_ptr[[row, end]]
    count = pieces[begin:stop]
    source = np.repeat(np.arange(begin, stop), count)
    stretch = ragged_range(first[begin:stop], count)
    key, size, falls = stretches.key[stretch], stretches.size[stretch], stretches.falls[stretch]
    low = np.maximum(table.start[source] - key, 0)
    high = np.minimum(table.stop[source] - key, size)
    place = stretches.place[stretch]
    start = place + np.where(falls, size - high, low)
    return IntervalTable.from_intervals(
        table.rows_per_interval()[source] - row, start, start + (high - low), end - row, kv_len
    )


def _like_row_before(table: IntervalTable) -> Bools:
    """bool ``(q_len,)``: whether a row has the very intervals of the row before it."""
    count, row = np.diff(table.row_ptr), table.rows_per_interval()
    same = np.zeros(table.q_len, np.bool_)
    same[1:] = count[1:] == count[:-1]
    # Compare every interval with the one that stands in its place in the row before.
    here = np.flatnonzero(same[row])
    before = here - count[row[here]]
    differs = (table.start[here] != table.start[before]) | (table.stop[here] != table.stop[before])
    same[row[here[differs]]] = False
    return same


def _changes(table: IntervalTable) -> int:
    """Cells in which a row differs from the one before: what a transposition has to pass over."""
    return (table ^ table.take_rows(np.maximum(np.arange(table.q_len) - 1, 0))).visible_pairs
