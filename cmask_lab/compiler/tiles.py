"""Intervals to tiles: for every query tile its runs of full tiles and its partial tiles, with exact pair counts.

A full tile is visible in every cell that exists (the last row and column of tiles may be ragged); a partial tile in
some; empty tiles are never listed.

The number of visible pairs of a tile is the integral of a step function: an interval that starts at offset ``r`` of kv
tile ``a`` adds ``kv_tile - r`` pairs to tile ``a`` and ``kv_tile`` to every later one; its stop takes the same away.
Two weighted counts of the interval ends and one running sum thus give all tiles of a query tile without sorting
anything, inside the hull (first to last visible key) of that query tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cmask_lab.compiler.intervals import Int32s, Int64s, IntervalTable, ragged_range

CELLS_AT_ONCE = 1 << 22
CELLS_PER_INTERVAL = 1 << 6
"""Query tiles are taken together while their hulls hold at most 4 Mi tiles and they have at most 64 Ki intervals, so
that the working arrays stay in the cache and memory is bounded (a million intervals in one go take half as long again).
"""

ONE_END_BIT = 30
ONE_END = 1 << ONE_END_BIT
"""More than the offsets of all interval ends in a tile add up to (256 rows, 128 intervals each, offsets below 256)."""

EMPTY, PARTIAL, FULL = 0, 1, 2
"""Tile classes, as in :meth:`TileMap.classes`."""


@dataclass(frozen=True)
class TileMap:
    """The non-empty tiles of a table.

    Attributes:
        q_tile, kv_tile: tile size in positions.
        q_len, kv_len: size of the plane in positions.
        run_row, run_start, run_stop: int64 ``(runs,)``: kv tiles ``[run_start, run_stop)`` of query tile ``run_row``
            are full.
        partial_row, partial_tile: int64 ``(n,)``: query tile and kv tile of every partial tile, in that order.
        partial_pairs: int64 ``(n,)``: visible pairs in it.

    >>> tiles = tile_table(IntervalTable.from_row_bounds(np.zeros(256, int), np.arange(1, 257), 256), (128, 128))
    >>> tiles.classes()
    array([[1, 0],
           [2, 1]], dtype=uint8)
    """

    q_tile: int
    kv_tile: int
    q_len: int
    kv_len: int
    run_row: Int64s
    run_start: Int64s
    run_stop: Int64s
    partial_row: Int64s
    partial_tile: Int64s
    partial_pairs: Int64s

    @property
    def q_tiles(self) -> int:
        """Query tiles, the ragged last one included."""
        return -(-self.q_len // self.q_tile)

    @property
    def kv_tiles(self) -> int:
        """Kv tiles, the ragged last one included."""
        return -(-self.kv_len // self.kv_tile)

    @cached_property
    def full_tiles(self) -> int:
        """Number of full tiles."""
        return int((self.run_stop - self.run_start).sum())

    @property
    def partial_tiles(self) -> int:
        """Number of partial tiles."""
        return len(self.partial_row)

    @cached_property
    def full_per_row(self) -> Int64s:
        """int64 ``(q_tiles,)``: full tiles of every query tile."""
        full = np.bincount(self.run_row, weights=self.run_stop - self.run_start, minlength=self.q_tiles)
        return full.astype(np.int64)

    @cached_property
    def partial_per_row(self) -> Int64s:
        """int64 ``(q_tiles,)``: partial tiles of every query tile."""
        return np.bincount(self.partial_row, minlength=self.q_tiles)

    def classes(self, q_tiles: tuple[int, int] | None = None, kv_tiles: tuple[int, int] | None = None) -> np.ndarray:
        """uint8 ``(q_tiles, kv_tiles)``: 0 empty, 1 partial, 2 full; of all tiles or of the given half-open ranges."""
        return self._paint(np.uint8(PARTIAL), np.uint8(FULL), q_tiles, kv_tiles)

    def density(self, q_tiles: tuple[int, int] | None = None, kv_tiles: tuple[int, int] | None = None) -> np.ndarray:
        """float32 ``(q_tiles, kv_tiles)``: visible share of the cells that exist, in [0, 1]."""
        area = self._extent(self.partial_row, self.q_tile, self.q_len)
        area = area * self._extent(self.partial_tile, self.kv_tile, self.kv_len)
        return self._paint((self.partial_pairs / area).astype(np.float32), np.float32(1), q_tiles, kv_tiles)

    @staticmethod
    def _extent(number: Int64s, size: int, length: int) -> Int64s:
        """Positions of tile ``number`` that exist: ``size``, or less for the ragged last one."""
        return np.minimum(size, length - number * size)

    def _paint(self, partial, full, q_tiles: tuple[int, int] | None, kv_tiles: tuple[int, int] | None) -> np.ndarray:
        q_lo, q_hi = q_tiles or (0, self.q_tiles)
        k_lo, k_hi = kv_tiles or (0, self.kv_tiles)
        image = np.zeros((q_hi - q_lo, k_hi - k_lo), full.dtype)
        inside = (self.partial_row >= q_lo) & (self.partial_row < q_hi)
        inside &= (self.partial_tile >= k_lo) & (self.partial_tile < k_hi)
        value = np.broadcast_to(partial, inside.shape)[inside]
        image[self.partial_row[inside] - q_lo, self.partial_tile[inside] - k_lo] = value
        start, stop = np.maximum(self.run_start, k_lo), np.minimum(self.run_stop, k_hi)
        inside = (self.run_row >= q_lo) & (self.run_row < q_hi) & (start < stop)
        row, start, size = self.run_row[inside], start[inside], (stop - start)[inside]
        image[np.repeat(row - q_lo, size), ragged_range(start - k_lo, size)] = full
        return image


def tile_table(table: IntervalTable, tile: tuple[int, int]) -> TileMap:
    """The tiles of a table, in time and memory that go with its intervals and non-empty query-tile hulls.

    Args:
        table: intervals of ``q_len`` rows.
        tile: ``(q_tile, kv_tile)`` in positions, powers of two.
    """
    q_tile, kv_tile = tile
    q_tiles = -(-table.q_len // q_tile)
    row_ptr, start, stop = table.row_ptr, table.start, table.stop
    tile_ptr = row_ptr[np.minimum(np.arange(q_tiles + 1) * q_tile, table.q_len)]
    hull_lo, hull_hi = query_tile_hulls(table, q_tile, kv_tile)
    # One cell more than the hull, where the running sum returns to zero.
    width = np.where(hull_hi > hull_lo, hull_hi - hull_lo + 1, 0)
    runs: list[tuple[Int64s, ...]] = []
    partials: list[tuple[Int64s, ...]] = []
    for first, last in row_groups(np.maximum(width, np.diff(tile_ptr) * CELLS_PER_INTERVAL), CELLS_AT_ONCE):
        cells = np.cumsum(width[first:last]) - width[first:last]
        own = slice(tile_ptr[first], tile_ptr[last])
        offset = np.repeat(cells - hull_lo[first:last], np.diff(tile_ptr[first : last + 1]))
        pairs = _pairs_per_cell(start[own], stop[own], offset, kv_tile, int(width[first:last].sum()))
        row = np.repeat(np.arange(first, last), width[first:last])
        column = ragged_range(hull_lo[first:last], width[first:last])
        area = TileMap._extent(row, q_tile, table.q_len) * TileMap._extent(column, kv_tile, table.kv_len)
        full = (pairs == area) & (pairs > 0)
        some = np.flatnonzero((pairs > 0) & ~full)
        partials.append((row[some], column[some], pairs[some]))
        # The spare last cell of every hull is never full, so a run never crosses into the next query tile.
        edge = np.flatnonzero(np.diff(full.astype(np.int8), prepend=0, append=0))
        opens, closes = edge[::2], edge[1::2] - 1
        runs.append((row[opens], column[opens], column[closes] + 1))
    run_row, run_start, run_stop = (_joined(part) for part in zip(*runs, strict=True)) if runs else (_NONE,) * 3
    partial = (_joined(part) for part in zip(*partials, strict=True)) if partials else (_NONE,) * 3
    return TileMap(q_tile, kv_tile, table.q_len, table.kv_len, run_row, run_start, run_stop, *partial)


_NONE = np.empty(0, np.int64)


def _joined(parts: tuple[Int64s, ...]) -> Int64s:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def query_tile_hulls(table: IntervalTable, q_tile: int, kv_tile: int) -> tuple[Int64s, Int64s]:
    """First kv tile that every query tile sees, and the one after the last; both 0 where it sees nothing.

    >>> query_tile_hulls(IntervalTable.from_row_bounds([0] * 64, [40] * 64, 64), 32, 32)
    (array([0, 0]), array([2, 2]))
    """
    q_tiles = -(-table.q_len // q_tile)
    if not q_tiles:
        return _NONE, _NONE
    lo, hi = table.bounds()
    lo = np.where(hi > lo, lo, table.kv_len)
    rows = np.arange(q_tiles) * q_tile
    first, last = np.minimum.reduceat(lo, rows), np.maximum.reduceat(hi, rows)
    return np.where(last > first, first // kv_tile, 0), np.where(last > first, -(-last // kv_tile), 0)


def _pairs_per_cell(start: Int32s, stop: Int32s, offset: Int64s, kv_tile: int, cells: int) -> Int64s:
    """Visible pairs of every cell; ``offset`` turns an interval's kv tile number into its cell."""
    shift = kv_tile.bit_length() - 1
    a, b = (start >> shift) + offset, (stop >> shift) + offset
    # A stop at the very end of a hull falls on the spare cell, so no index leaves its own hull. One weighted count
    # (exact in float64) gives both the number of ends in a cell, in the upper bits, and the sum of their offsets.
    ends = [
        np.bincount(at, (key & (kv_tile - 1)) + ONE_END, cells).astype(np.int64) for at, key in ((a, start), (b, stop))
    ]
    count = (ends[0] >> ONE_END_BIT) - (ends[1] >> ONE_END_BIT)
    remainder = (ends[0] & (ONE_END - 1)) - (ends[1] & (ONE_END - 1))
    step = count * kv_tile - remainder
    step[1:] += remainder[:-1]
    return np.cumsum(step)


def row_groups(width: Int64s, limit: int) -> list[tuple[int, int]]:
    """Consecutive rows taken together while their widths add up to at most ``limit`` (a wider row stands alone).

    >>> row_groups(np.array([3, 3, 9, 1]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(width)
    groups, first, before = [], 0, 0
    while first < len(width):
        last = max(int(np.searchsorted(ends, before + limit, side="right")), first + 1)
        groups.append((first, last))
        first, before = last, int(ends[last - 1])
    return groups
