"""For every query row its visible keys, as sorted, disjoint, half-open intervals.

A table of ``q_len`` rows is held as *one* sorted sequence of boundaries on a line: key ``k`` of row ``r`` stands at
``r * (kv_len + 1) + k``. The spare position at the end of every row keeps intervals of neighbouring rows apart, so
every set operation on tables is one merge of two sorted sequences, and touching intervals are always joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

POSITION_LIMIT = 2**31 - 1
"""Positions are stored as int32; a plane with a longer side is refused."""


class IntervalTable:
    """The visible keys of ``q_len`` query rows, as intervals ``[start, stop)`` of keys in ``[0, kv_len)``.

    Build one with a class method. Tables are immutable values: ``&  |  -  ^  ~`` are set operations, ``==`` compares
    the visible cells.

    >>> causal = IntervalTable.from_row_bounds([0, 0, 0], [1, 2, 3], kv_len=3)
    >>> window = IntervalTable.from_row_bounds([0, 1, 2], [2, 3, 3], kv_len=3)
    >>> (causal & window).to_dense().astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    >>> (causal | window).visible_pairs
    8
    """

    __slots__ = ("__dict__", "kv_len", "line", "q_len")

    def __init__(self, line: Int64s, q_len: int, kv_len: int):
        self.line = line
        """int64 ``(2n,)``: start, stop, start, stop, … on the line; strictly increasing."""
        self.q_len = q_len
        self.kv_len = kv_len
        line.flags.writeable = False

    # Building ------------------------------------------------------------------------------------------------------

    @classmethod
    def empty(cls, q_len: int, kv_len: int) -> IntervalTable:
        """A table in which no query sees anything."""
        _check_plane(q_len, kv_len)
        return cls(np.empty(0, np.int64), q_len, kv_len)

    @classmethod
    def full(cls, q_len: int, kv_len: int) -> IntervalTable:
        """A table in which every query sees every key."""
        return cls.from_row_bounds(np.zeros(q_len, np.int64), np.full(q_len, kv_len), kv_len)

    @classmethod
    def from_row_bounds(cls, lo: ArrayLike, hi: ArrayLike, kv_len: int) -> IntervalTable:
        """One interval a row: row ``i`` sees ``[lo[i], hi[i])``, clipped to ``[0, kv_len)``; ``lo >= hi`` sees nothing.

        >>> IntervalTable.from_row_bounds([-5, 2, 1], [1, 2, 9], kv_len=4).row(2)
        array([[1, 4]], dtype=int32)
        """
        lo, hi = np.broadcast_arrays(np.asarray(lo, np.int64), np.asarray(hi, np.int64))
        q_len = len(lo)
        _check_plane(q_len, kv_len)
        row_base = np.arange(q_len, dtype=np.int64) * (kv_len + 1)
        line = np.empty((q_len, 2), np.int64)
        np.maximum(lo, 0, out=line[:, 0])
        np.minimum(hi, kv_len, out=line[:, 1])
        seen = line[:, 0] < line[:, 1]
        line += row_base[:, None]
        return cls((line if seen.all() else np.compress(seen, line, axis=0)).reshape(-1), q_len, kv_len)

    @classmethod
    def from_intervals(
        cls, row: ArrayLike, start: ArrayLike, stop: ArrayLike, q_len: int, kv_len: int
    ) -> IntervalTable:
        """Any pieces ``[start, stop)`` of rows, in any order; clipped, and overlapping or touching ones joined.

        Args:
            row, start, stop: integers ``(n,)``; rows outside ``[0, q_len)`` are an error.

        >>> IntervalTable.from_intervals([0, 0, 0], [4, 0, 2], [5, 2, 3], q_len=1, kv_len=8).row(0).tolist()
        [[0, 3], [4, 5]]
        """
        _check_plane(q_len, kv_len)
        row, start, stop = (np.asarray(a, np.int64) for a in (row, start, stop))
        if not (row.shape == start.shape == stop.shape and row.ndim == 1):
            raise ValueError(
                f"intervals: row, start and stop must be one-dimensional and equally long, "
                f"got shapes {row.shape}, {start.shape}, {stop.shape}"
            )
        if len(row) and (row.min() < 0 or row.max() >= q_len):
            bad = row[(row < 0) | (row >= q_len)][0]
            raise ValueError(f"intervals: row {bad} is outside the {q_len} rows of the table")
        start, stop = np.maximum(start, 0), np.minimum(stop, kv_len)
        seen = start < stop
        if not seen.all():
            row, start, stop = row[seen], start[seen], stop[seen]
        base = row * (kv_len + 1)
        return cls(_normalised(base + start, base + stop), q_len, kv_len)

    @classmethod
    def from_row_ptr(cls, row_ptr: ArrayLike, start: ArrayLike, stop: ArrayLike, kv_len: int) -> IntervalTable:
        """Pieces in compressed-row form: row ``i`` has ``row_ptr[i]`` to ``row_ptr[i + 1]``; clipped and joined.

        >>> IntervalTable.from_row_ptr([0, 2, 2], [0, 5], [2, 6], kv_len=8).row_ptr.tolist()
        [0, 2, 2]
        """
        ptr = np.asarray(row_ptr, np.int64)
        size = np.asarray(start).shape[0]
        if ptr.ndim != 1 or len(ptr) < 1 or ptr[0] != 0 or ptr[-1] != size or (np.diff(ptr) < 0).any():
            raise ValueError(f"intervals: row_ptr must rise from 0 to the number of intervals, {size}")
        row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        return cls.from_intervals(row, start, stop, len(ptr) - 1, kv_len)

    @classmethod
    def from_dense(cls, dense: ArrayLike) -> IntervalTable:
        """The intervals of a bool array ``(q_len, kv_len)``.

        >>> IntervalTable.from_dense([[True, False, True]]).row(0).tolist()
        [[0, 1], [2, 3]]
        """
        array = np.asarray(dense)
        if array.ndim != 2 or array.dtype != np.bool_:
            raise TypeError(
                f"intervals: a dense mask is a bool array (q_len, kv_len), got {array.dtype} of shape {array.shape}"
            )
        q_len, kv_len = array.shape
        _check_plane(q_len, kv_len)
        # With one empty column after every row the flattened array changes value exactly at the boundaries.
        padded = np.zeros((q_len, kv_len + 1), np.bool_)
        padded[:, :kv_len] = array
        flat = padded.reshape(-1)
        change = np.flatnonzero(flat[1:] != flat[:-1]).astype(np.int64) + 1
        return cls(np.concatenate([[0], change]) if flat.size and flat[0] else change, q_len, kv_len)

    @classmethod
    def concatenate(cls, tables: Sequence[IntervalTable]) -> IntervalTable:
        """The rows of several tables of equal ``kv_len`` under one another.

        >>> one = IntervalTable.full(1, 2)
        >>> IntervalTable.concatenate([one, one]).q_len
        2
        """
        if len({table.kv_len for table in tables}) != 1:
            raise ValueError(f"intervals: tables of kv_len {[table.kv_len for table in tables]} have no common plane")
        kv_len = tables[0].kv_len
        first_row = np.cumsum([0] + [table.q_len for table in tables])
        _check_plane(int(first_row[-1]), kv_len)
        lines = [table.line + first * (kv_len + 1) for table, first in zip(tables, first_row, strict=False)]
        return cls(np.concatenate(lines), int(first_row[-1]), kv_len)

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of intervals."""
        return len(self.line) // 2

    @cached_property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs that are visible."""
        return int((self.line[1::2] - self.line[::2]).sum())

    @property
    def density(self) -> float:
        """Visible pairs over all pairs; 0 for a plane without any."""
        return self.visible_pairs / max(self.q_len * self.kv_len, 1)

    @cached_property
    def row_ptr(self) -> Int64s:
        """int64 ``(q_len + 1,)``: the intervals of row ``i`` are ``row_ptr[i]`` to ``row_ptr[i + 1]``."""
        row_base = np.arange(self.q_len + 1, dtype=np.int64) * (self.kv_len + 1)
        return np.searchsorted(self.line[::2], row_base)

    @cached_property
    def start(self) -> Int32s:
        """int32 ``(n,)``: first key of every interval."""
        return self._keys(self.line[::2])

    @cached_property
    def stop(self) -> Int32s:
        """int32 ``(n,)``: the key after the last of every interval."""
        return self._keys(self.line[1::2])

    def _keys(self, boundaries: Int64s) -> Int32s:
        row_base = np.arange(self.q_len, dtype=np.int64) * (self.kv_len + 1)
        keys = np.empty(self.count, np.int32)
        np.subtract(boundaries, np.repeat(row_base, np.diff(self.row_ptr)), out=keys, casting="unsafe")
        return keys

    def rows_per_interval(self) -> Int64s:
        """int64 ``(n,)``: the row of every interval."""
        return np.repeat(np.arange(self.q_len, dtype=np.int64), np.diff(self.row_ptr))

    def row(self, query: int) -> Int32s:
        """int32 ``(n, 2)``: the intervals ``[start, stop)`` of one row."""
        if not 0 <= query < self.q_len:
            raise IndexError(f"intervals: row {query} is outside the {self.q_len} rows of the table")
        first, last = np.searchsorted(self.line, [query * (self.kv_len + 1), (query + 1) * (self.kv_len + 1)])
        return (self.line[first:last] - query * (self.kv_len + 1)).astype(np.int32).reshape(-1, 2)

    def bounds(self) -> tuple[Int64s, Int64s]:
        """int64 ``(q_len,)`` twice: first visible key of every row and the one after the last; (0, 0) if none.

        >>> IntervalTable.from_dense([[False, True, False, True], [False] * 4]).bounds()
        (array([1, 0]), array([4, 0]))
        """
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[Int64s, Int64s]:
        ptr = self.row_ptr
        seen = ptr[1:] > ptr[:-1]
        if seen.all():
            return self.start[ptr[:-1]].astype(np.int64), self.stop[ptr[1:] - 1].astype(np.int64)
        lo, hi = np.zeros(self.q_len, np.int64), np.zeros(self.q_len, np.int64)
        lo[seen], hi[seen] = self.start[ptr[:-1][seen]], self.stop[ptr[1:][seen] - 1]
        return lo, hi

    def to_dense(self) -> Bools:
        """bool ``(q_len, kv_len)``."""
        step = np.zeros(self.q_len * (self.kv_len + 1) + 1, np.int8)
        step[self.line[::2]] = 1
        step[self.line[1::2]] = -1
        inside = np.cumsum(step, dtype=np.int8)[:-1].astype(np.bool_)
        return inside.reshape(self.q_len, self.kv_len + 1)[:, : self.kv_len].copy()

    # Set algebra ---------------------------------------------------------------------------------------------------

    def __and__(self, other: IntervalTable) -> IntervalTable:
        return self._merged(other, np.bitwise_and)

    def __or__(self, other: IntervalTable) -> IntervalTable:
        return self._merged(other, np.bitwise_or)

    def __xor__(self, other: IntervalTable) -> IntervalTable:
        return self._merged(other, np.bitwise_xor)

    def __sub__(self, other: IntervalTable) -> IntervalTable:
        return self._merged(other, np.greater)

    def __invert__(self) -> IntervalTable:
        return IntervalTable.full(self.q_len, self.kv_len) ^ self

    def _merged(self, other: IntervalTable, operation: Callable[..., NDArray]) -> IntervalTable:
        if (self.q_len, self.kv_len) != (other.q_len, other.kv_len):
            raise ValueError(
                f"intervals: tables of {self.q_len}×{self.kv_len} and {other.q_len}×{other.kv_len} "
                f"have no common plane; use equal q_len and kv_len"
            )
        return IntervalTable(_merge(self.line, other.line, operation), self.q_len, self.kv_len)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalTable):
            return NotImplemented
        return (self.q_len, self.kv_len) == (other.q_len, other.kv_len) and np.array_equal(self.line, other.line)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalTable(q_len={self.q_len}, kv_len={self.kv_len}, {self.count} intervals)"

    # Moving --------------------------------------------------------------------------------------------------------

    def take_rows(self, index: ArrayLike) -> IntervalTable:
        """Row ``r`` of the result is row ``index[r]`` of this table; rows may repeat.

        >>> IntervalTable.from_row_bounds([0, 1], [1, 4], kv_len=4).take_rows([1, 1, 0]).visible_pairs
        7
        """
        index = np.asarray(index, np.int64)
        if len(index) and (index.min() < 0 or index.max() >= self.q_len):
            raise IndexError(
                f"intervals: rows to take must lie in [0, {self.q_len}), got {index.min()} … {index.max()}"
            )
        sizes = np.diff(self.row_ptr)[index]
        source = ragged_range(self.row_ptr[index], sizes)
        row_shift = np.repeat((np.arange(len(index)) - index) * (self.kv_len + 1), sizes)
        line = self.line.reshape(-1, 2)[source] + row_shift[:, None]
        return IntervalTable(line.reshape(-1), len(index), self.kv_len)

    def clip(self, lo: ArrayLike, hi: ArrayLike) -> IntervalTable:
        """What lies in ``[lo, hi)``; each a number or one a row.

        >>> IntervalTable.full(2, 8).clip([0, 3], 4).visible_pairs
        5
        """
        lo = np.broadcast_to(np.asarray(lo, np.int64), self.q_len)
        hi = np.broadcast_to(np.asarray(hi, np.int64), self.q_len)
        row_base = np.arange(self.q_len, dtype=np.int64) * (self.kv_len + 1)
        row = self.rows_per_interval()
        line = self.line.reshape(-1, 2)
        start = np.maximum(line[:, 0], (row_base + np.clip(lo, 0, self.kv_len))[row])
        stop = np.minimum(line[:, 1], (row_base + np.clip(hi, 0, self.kv_len))[row])
        seen = start < stop
        clipped = np.stack([start[seen], stop[seen]], axis=1)
        return IntervalTable(clipped.reshape(-1), self.q_len, self.kv_len)

    def shift(self, keys: ArrayLike, kv_len: int | None = None) -> IntervalTable:
        """Every row moved by ``keys`` (a number or one a row), clipped to ``[0, kv_len)``; ``kv_len`` may change.

        >>> IntervalTable.full(1, 3).shift(2, kv_len=4).row(0).tolist()
        [[2, 4]]
        """
        kv_len = self.kv_len if kv_len is None else kv_len
        offset = np.broadcast_to(np.asarray(keys, np.int64), self.q_len)
        _check_plane(self.q_len, kv_len)
        rows = np.arange(self.q_len, dtype=np.int64)
        row = self.rows_per_interval()
        line = self.line.reshape(-1, 2) + (offset - rows * (self.kv_len + 1))[row][:, None]
        np.clip(line, 0, kv_len, out=line)
        seen = line[:, 0] < line[:, 1]
        line += (row * (kv_len + 1))[:, None]
        return IntervalTable(np.compress(seen, line, axis=0).reshape(-1), self.q_len, kv_len)

    def transpose(self) -> IntervalTable:
        """The table of the transposed plane: for every key the queries that see it, as intervals.

        Time and memory go with the intervals of both tables: a run of queries begins or ends at a key exactly where
        two consecutive rows differ, so the cells of ``row[t] ^ row[t - 1]`` are the boundaries of the result.

        >>> IntervalTable.from_row_bounds([0, 0, 0], [1, 2, 3], kv_len=3).transpose().row(1).tolist()
        [[1, 3]]
        """
        stride = self.kv_len + 1
        change = _merge(self.line, self.line + stride, np.bitwise_xor)
        first, size = change[::2], change[1::2] - change[::2]
        cells = ragged_range(first, size)
        query, key = np.divmod(cells, stride)
        line = key * (self.q_len + 1) + query
        line.sort()
        return IntervalTable(line, self.kv_len, self.q_len)


def ragged_range(first: NDArray, size: NDArray) -> Int64s:
    """``first[i], first[i] + 1, …`` (``size[i]`` of them) for every ``i``, one after another.

    >>> ragged_range(np.array([5, 0, 8]), np.array([2, 0, 3])).tolist()
    [5, 6, 8, 9, 10]
    """
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(first - (ends - size), size)


def _merge(a: Int64s, b: Int64s, operation: Callable[..., NDArray]) -> Int64s:
    """Boundaries of ``operation(inside a, inside b)``: one stable merge of two sequences, then linear passes."""
    if not len(a) or not len(b):
        # One side is nowhere inside: the operation, applied to a single sample, says whether the other one stays.
        stays_a = bool(operation(np.uint8(1), np.uint8(0))) and len(a) > 0
        stays_b = bool(operation(np.uint8(0), np.uint8(1))) and len(b) > 0
        return a if stays_a else b if stays_b else np.empty(0, np.int64)
    tagged = np.concatenate([a << 1, (b << 1) | 1])
    tagged.sort(kind="stable")  # two sorted halves: the stable sort merges them in linear time
    from_b = (tagged & 1).astype(np.uint8)
    position = tagged >> 1
    inside_a = np.bitwise_xor.accumulate(from_b ^ 1)
    inside_b = np.bitwise_xor.accumulate(from_b)
    inside = operation(inside_a, inside_b).astype(np.bool_)
    last = np.empty(
        len(position), np.bool_
    )  # of several boundaries at one position only the state after the last counts
    np.not_equal(position[1:], position[:-1], out=last[:-1])
    last[-1] = True
    position, inside = position[last], inside[last]
    change = np.empty(len(position), np.bool_)
    change[0] = inside[0]
    np.not_equal(inside[1:], inside[:-1], out=change[1:])
    return position[change]


def _normalised(start: Int64s, stop: Int64s) -> Int64s:
    """Boundaries of the union of non-empty pieces given by line positions, in any order."""
    if not len(start):
        return np.empty(0, np.int64)
    if (start[1:] < start[:-1]).any():
        by_start = np.argsort(start, kind="stable")
        start, stop = start[by_start], stop[by_start]
    reach = np.maximum.accumulate(stop)
    opens = np.empty(len(start), np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    closes = np.append(opens[1:], True)
    return np.stack([start[opens], reach[closes]], axis=1).reshape(-1)


def _check_plane(q_len: int, kv_len: int) -> None:
    for name, value in (("q_len", q_len), ("kv_len", kv_len)):
        if not 0 <= value <= POSITION_LIMIT:
            raise ValueError(f"intervals: {name} is {value}; it must lie between 0 and {POSITION_LIMIT}")
