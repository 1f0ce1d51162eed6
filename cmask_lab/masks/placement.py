"""A mask moved, repeated along the diagonal, gathered or transposed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.masks.arguments import integer, integers, pair
from cmask_lab.masks.combinators import _bracketed
from cmask_lab.masks.mask import Bounds, Extent, Mask, Support, Window, abbreviated, moved

PIECES_AT_A_TIME = 1 << 21
"""Key intervals that a gather maps in one go: some 100 MB of working memory."""


@dataclass(frozen=True, eq=False, repr=False)
class At(Mask):
    mask: Mask
    q: tuple[int, int]
    k: tuple[int, int]

    type = "at"

    @property
    def children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def extent(self) -> Extent:
        return self.q[1], self.k[1]

    @property
    def formula(self) -> str:
        return f"{_bracketed(self.mask)} at i ∈ [{self.q[0]}, {self.q[1]}), j ∈ [{self.k[0]}, {self.k[1]})"

    @property
    def _support(self) -> Support:
        inner = self.mask._support
        return Support(
            min(self.q[0] + inner.q0, self.q[1]),
            min(self.q[0] + inner.q1, self.q[1]),
            min(self.k[0] + inner.k0, self.k[1]),
            min(self.k[0] + inner.k1, self.k[1]),
        )

    @property
    def _single(self) -> bool:
        return self.mask._single

    def _row_bounds(self, window: Window) -> Bounds:
        low, high = np.zeros((2, window.q_len), np.int64)
        part = window.rows(*self.q)
        first = part.q_start - window.q_start
        inside = slice(first, first + part.q_len)
        inner = Window(part.q_start - self.q[0], part.q_len, self.k[1] - self.k[0])
        if part.q_len:
            inner_low, inner_high = self.mask._row_bounds(inner)
            low[inside] = np.maximum(inner_low, 0) + self.k[0]
            high[inside] = np.minimum(inner_high, inner.kv_len) + self.k[0]
        return low, high

    def _estimate(self, window: Window) -> int:
        part = window.rows(*self.q)
        return self.mask._estimate(Window(max(part.q_start - self.q[0], 0), part.q_len, self.k[1] - self.k[0]))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        part = window.rows(*self.q)
        keys = min(self.k[1], window.kv_len) - self.k[0]
        if not part.q_len or keys <= 0:
            return IntervalTable.empty(window.q_len, window.kv_len)
        first = part.q_start - window.q_start
        if bounds is not None:
            rows = slice(first, first + part.q_len)
            bounds = bounds[0][rows] - self.k[0], bounds[1][rows] - self.k[0]
        if self.mask._support.k1 <= keys:
            # Nothing lies behind the box, so the inner plane may be as wide as ours: the move is one addition.
            inner = self.mask._lower(Window(part.q_start - self.q[0], part.q_len, window.kv_len), bounds)
            return moved(inner, first, self.k[0], window)
        inner = self.mask._lower(Window(part.q_start - self.q[0], part.q_len, keys), bounds)
        return moved(inner.shift(self.k[0], window.kv_len), first, 0, window)

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.at(q={self.q}, k={self.k})"


def at(mask: Mask, q: Any, k: Any) -> At:
    """``mask.at(q=q, k=k)``, checked."""
    q, k = pair(q, "at: q"), pair(k, "at: k")
    for noun, made, (start, stop) in zip(("queries", "keys"), mask.extent, (q, k), strict=True):
        if made is not None and made > stop - start:
            raise ValueError(
                f"at: the mask was made for {made} {noun} and does not fit [{start}, {stop}), which holds {stop - start}"
            )
    return At(mask, q, k)


class _Boxes(Mask):
    """Square boxes one after another on the diagonal."""

    sizes: Int64s

    @cached_property
    def offsets(self) -> Int64s:
        """int64 ``(boxes + 1,)``: where each box starts."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def extent(self) -> Extent:
        total = int(self.offsets[-1])
        return total, total

    @property
    def _support(self) -> Support:
        total = int(self.offsets[-1])
        return Support(0, total, 0, total)

    def _boxes(self, window: Window) -> Iterator[tuple[int, Window]]:
        """The boxes with rows in the window: number and, in the box's own positions, the window's part of it."""
        part = window.rows(0, int(self.offsets[-1]))
        first = int(np.searchsorted(self.offsets, part.q_start, "right")) - 1
        last = int(np.searchsorted(self.offsets, part.q_stop, "left"))
        for box in range(first, last if part.q_len else first):
            offset, size = int(self.offsets[box]), int(self.sizes[box])
            rows = Window(part.q_start - offset, part.q_len, size).rows(0, size)
            if rows.q_len:
                yield box, rows


@dataclass(frozen=True, eq=False, repr=False)
class Repeat(_Boxes):
    sizes: Int64s
    mask: Mask

    type = "repeat"

    @property
    def children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def formula(self) -> str:
        return f"{_bracketed(self.mask)} in each box of sizes {abbreviated(self.sizes)}"

    @property
    def _single(self) -> bool:
        return self.mask._single

    def _local(self, window: Window) -> tuple[Int64s, Int64s, Int64s]:
        """For every row of the window inside a box: position in its box, first key of the box, size of the box."""
        total = int(self.offsets[-1])
        first, last = min(window.q_start, total), min(window.q_stop, total)
        rows_in_box = np.diff(np.clip(self.offsets, first, last))
        offset = np.repeat(self.offsets[:-1], rows_in_box)
        return np.arange(first, last) - offset, offset, np.repeat(self.sizes, rows_in_box)

    def _row_bounds(self, window: Window) -> Bounds:
        row, offset, size = self._local(window)
        largest = int(self.sizes.max())
        inner_low, inner_high = self.mask._row_bounds(Window(0, largest, largest))
        low, high = np.zeros((2, window.q_len), np.int64)
        low[: len(row)] = np.maximum(inner_low[row], 0) + offset
        high[: len(row)] = np.minimum(inner_high[row], size) + offset
        return low, high

    def _estimate(self, window: Window) -> int:
        largest = int(self.sizes.max())
        return window.q_len * self.mask._estimate(Window(0, largest, largest)) // max(largest, 1)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return IntervalTable.from_row_bounds(*self._row_bounds(window), window.kv_len)
        # Positions are absolute, so the mask in a small box is the corner of the mask in the largest one.
        row, offset, size = self._local(window)
        if not len(row):
            return IntervalTable.empty(window.q_len, window.kv_len)
        first, last = int(row.min()), int(row.max()) + 1
        inner = self.mask._lower(Window(first, last - first, int(self.sizes.max())))
        boxes = inner.take_rows(row - first).clip(0, size).shift(offset, window.kv_len)
        return moved(boxes, 0, 0, window)

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.repeat({self.sizes.tolist()})"


@dataclass(frozen=True, eq=False, repr=False)
class RepeatEach(_Boxes):
    sizes: Int64s
    masks: tuple[Mask, ...]

    type = "repeat"

    @property
    def children(self) -> tuple[Mask, ...]:
        return self.masks

    @property
    def formula(self) -> str:
        return f"{len(self.masks)} masks in boxes of sizes {abbreviated(self.sizes)}"

    @property
    def _single(self) -> bool:
        return all(mask._single for mask in self.masks)

    def _row_bounds(self, window: Window) -> Bounds:
        low, high = np.zeros((2, window.q_len), np.int64)
        for box, rows in self._boxes(window):
            offset = int(self.offsets[box])
            first = rows.q_start + offset - window.q_start
            inner_low, inner_high = self.masks[box]._row_bounds(rows)
            low[first : first + rows.q_len] = np.maximum(inner_low, 0) + offset
            high[first : first + rows.q_len] = np.minimum(inner_high, rows.kv_len) + offset
        return low, high

    def _estimate(self, window: Window) -> int:
        return sum(self.masks[box]._estimate(rows) for box, rows in self._boxes(window))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return IntervalTable.from_row_bounds(*self._row_bounds(window), window.kv_len)
        lines = [np.empty(0, np.int64)]
        for box, rows in self._boxes(window):
            offset = int(self.offsets[box])
            inner = self.masks[box]._lower(rows).shift(offset, window.kv_len)
            lines.append(inner.line + (rows.q_start + offset - window.q_start) * (window.kv_len + 1))
        return IntervalTable(np.concatenate(lines), window.q_len, window.kv_len)

    def _code(self) -> str:
        return f"cm.repeat({self.sizes.tolist()}, [{', '.join(repr(mask) for mask in self.masks)}])"


def repeat(sizes: ArrayLike, masks: Mask | Iterable[Mask]) -> Repeat | RepeatEach:
    """Square boxes of these sizes one after another on the diagonal, a mask in each, cropped to its box.

    Args:
        sizes: one a box; 0 is allowed.
        masks: one mask for all the boxes, or a list with one for each.

    >>> import cmask_lab as cm
    >>> cm.repeat([2, 1], [cm.full(), cm.causal()]).to_dense(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    array = integers(sizes, "repeat", "size")
    integer(array.sum(), "repeat: the sum of the sizes")
    if isinstance(masks, Mask):
        return Repeat(array, masks)
    each = tuple(masks)
    for n, mask in enumerate(each):
        if not isinstance(mask, Mask):
            raise TypeError(f"repeat: mask {n} is {mask!r}; it must be a mask")
    if len(each) != len(array):
        raise ValueError(f"repeat: {len(array)} sizes and {len(each)} masks; give one mask for each box, or one for all")
    return RepeatEach(array, each)


@dataclass(frozen=True, eq=False, repr=False)
class Take(Mask):
    mask: Mask
    q: Int64s | None
    k: Int64s | None

    type = "take"

    @property
    def children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def extent(self) -> Extent:
        queries, keys = self.mask.extent
        return queries if self.q is None else len(self.q), keys if self.k is None else len(self.k)

    @property
    def formula(self) -> str:
        moves = [f"{old} = {new}({old})" for old, new, index in (("i", "σ", self.q), ("j", "τ", self.k)) if index is not None]
        return f"{_bracketed(self.mask)} with {', '.join(moves)}"

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
        if self.q is None:
            return self.mask._row_bounds(window)
        index = self.q[window.q_start : window.q_stop]
        low, high = np.zeros((2, window.q_len), np.int64)
        if len(index):
            first = int(index.min())
            inner = self.mask._row_bounds(Window(first, int(index.max()) + 1 - first, window.kv_len))
            low[: len(index)], high[: len(index)] = (side[index - first] for side in inner)
        return low, high

    def _estimate(self, window: Window) -> int:
        inner = self.mask._estimate(window)
        return inner if self.k is None else inner + window.q_len * len(self._key_runs.key)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return IntervalTable.from_row_bounds(*self._row_bounds(window), window.kv_len)
        keys = window.kv_len if self.k is None else int(self.k.max()) + 1
        table = self._rows_taken(Window(window.q_start, window.q_len, keys), bounds if self.k is None else None)
        return table if self.k is None else _keys_taken(table, self._key_runs, window.kv_len)

    def _rows_taken(self, window: Window, bounds: Bounds | None) -> IntervalTable:
        """The rows of the window, its keys still those of the inner mask."""
        if self.q is None:
            return self.mask._lower(window, bounds)
        index = self.q[window.q_start : window.q_stop]
        # The rows wanted often lie in a few stretches (the shard of one device, the queries of one step): lower those.
        wanted = np.unique(index)
        if not len(wanted):
            return IntervalTable.empty(window.q_len, window.kv_len)
        gaps = np.flatnonzero(np.diff(wanted) > max(64, len(wanted) // 16)) + 1
        parts = [
            self.mask._lower(Window(int(rows[0]), int(rows[-1] - rows[0]) + 1, window.kv_len))
            for rows in np.split(wanted, gaps)
        ]
        stretch = np.append(0, gaps)
        rows_before = np.cumsum([0] + [part.q_len for part in parts[:-1]])
        which = np.searchsorted(wanted[stretch], index, "right") - 1
        place = index - wanted[stretch][which] + rows_before[which]
        return moved(IntervalTable.concatenate(parts).take_rows(place), 0, 0, window)

    @cached_property
    def _key_runs(self) -> _Runs:
        assert self.k is not None
        return _Runs.of(self.k)

    def _code(self) -> str:
        axes = [f"{axis}={index.tolist()}" for axis, index in (("q", self.q), ("k", self.k)) if index is not None]
        return f"{self.mask._inner_code()}.take({', '.join(axes)})"


def take(mask: Mask, q: Any, k: Any) -> Take:
    """``mask.take(q=q, k=k)``, checked."""
    if q is None and k is None:
        raise TypeError("take: neither q nor k given; give the positions to gather for at least one of them")
    q, k = (None if index is None else integers(index, f"take: {axis}", "position") for axis, index in (("q", q), ("k", k)))
    return Take(mask, q, k)


@dataclass(frozen=True)
class _Runs:
    """A list of positions as stretches that rise or fall by one, sorted by position and cut so that any two of them
    hold the same positions or have none in common."""

    key: Int64s
    """The smallest position of each stretch; ascending."""
    size: Int64s
    place: Int64s
    """Where in the list the stretch begins."""
    falls: np.ndarray
    """bool: the list falls along the stretch."""

    @classmethod
    def of(cls, index: Int64s) -> _Runs:
        step = np.diff(index)
        # A stretch goes on while the step stays the same +1 or -1.
        goes_on = np.abs(step) == 1
        goes_on[1:] &= (step[1:] == step[:-1]) | ~goes_on[:-1]
        start = np.append(0, np.flatnonzero(~goes_on) + 1)
        size = np.diff(np.append(start, len(index)))
        falls = np.append(step, 1)[start] == -1
        falls &= size > 1
        key = np.where(falls, index[start] - size + 1, index[start])
        # Cut every stretch where another one begins or ends.
        edges = np.unique(np.concatenate([key, key + size]))
        first, last = np.searchsorted(edges, key), np.searchsorted(edges, key + size)
        source = np.repeat(np.arange(len(key)), last - first)
        edge = ragged_range(first, last - first)
        begin, end = edges[edge], edges[edge + 1]
        inside = np.where(falls[source], (key + size)[source] - end, begin - key[source])
        by_key = np.argsort(begin, kind="stable")
        cut = cls(begin, end - begin, start[source] + inside, falls[source])
        return cls(cut.key[by_key], cut.size[by_key], cut.place[by_key], cut.falls[by_key])


def _keys_taken(table: IntervalTable, runs: _Runs, kv_len: int) -> IntervalTable:
    """Every interval carried through the stretches that it meets; neighbouring rows that are equal only once."""
    same = _same_as_row_before(table)
    distinct = np.flatnonzero(~same)
    rows = table.take_rows(distinct)
    first = np.searchsorted(runs.key + runs.size, rows.start, "right")
    pieces = np.maximum(np.searchsorted(runs.key, rows.stop, "left") - first, 0)
    row_pieces = np.append(0, np.cumsum(pieces))[rows.row_ptr]
    parts, row = [], 0
    while row < rows.q_len:
        end = max(int(np.searchsorted(row_pieces, row_pieces[row] + PIECES_AT_A_TIME, "right")) - 1, row + 1)
        parts.append(_carried(rows, slice(*rows.row_ptr[[row, end]]), row, end, first, pieces, runs, kv_len))
        row = end
    carried = IntervalTable.concatenate(parts) if parts else IntervalTable.empty(0, kv_len)
    return carried.take_rows(np.cumsum(~same) - 1)


def _carried(
    rows: IntervalTable, part: slice, row: int, end: int, first: Int64s, pieces: Int64s, runs: _Runs, kv_len: int
) -> IntervalTable:
    """The rows ``[row, end)``, whose intervals are ``part``, in the keys of the gathered mask."""
    count = pieces[part]
    source = np.repeat(np.arange(part.start, part.stop), count)
    run = ragged_range(first[part], count)
    key = runs.key[run]
    begin = np.maximum(rows.start[source], key) - key
    stop = np.minimum(rows.stop[source], key + runs.size[run]) - key
    falls, size = runs.falls[run], runs.size[run]
    begin, stop = np.where(falls, size - stop, begin), np.where(falls, size - begin, stop)
    place = runs.place[run]
    owner = rows.rows_per_interval()[source] - row
    return IntervalTable.from_intervals(owner, place + begin, place + stop, end - row, kv_len)


def _same_as_row_before(table: IntervalTable) -> np.ndarray:
    """bool ``(q_len,)``: whether a row has the very intervals of the row before it."""
    ptr = table.row_ptr
    count = np.diff(ptr)
    same = np.zeros(table.q_len, np.bool_)
    same[1:] = count[1:] == count[:-1]
    # An interval differs from the one that stands at its place in the row before.
    check = np.flatnonzero(same[table.rows_per_interval()])
    other = check - np.repeat(count, count)[check]
    differs = (table.start[check] != table.start[other]) | (table.stop[check] != table.stop[other])
    same[table.rows_per_interval()[check[differs]]] = False
    return same


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Mask):
    mask: Mask

    type = "transposed"

    @property
    def children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def extent(self) -> Extent:
        queries, keys = self.mask.extent
        return keys, queries

    @property
    def formula(self) -> str:
        return f"{_bracketed(self.mask)}ᵀ"

    @property
    def _support(self) -> Support:
        inner = self.mask._support
        return Support(inner.k0, inner.k1, inner.q0, inner.q1)

    def _estimate(self, window: Window) -> int:
        return self.mask._estimate(Window(0, window.kv_len, window.q_stop))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        inner = self.mask._lower(Window(0, window.kv_len, window.q_stop)).clip(window.q_start, window.q_stop)
        return inner.shift(-window.q_start, window.q_len).transpose()

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.transposed()"
