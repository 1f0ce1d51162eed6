"""Which cells of a partial tile are visible: one bit a cell, equal tiles stored once.

Tiles are compared by fingerprints, not bit by bit, so that the bits of a repeated tile are never built. The boundaries
of the intervals inside a tile determine its cells. With random odd 64-bit numbers ``R`` for rows and ``X`` for columns
the fingerprint is the sum of ``R[row] * (X[start] - X[stop])`` modulo 2^64, kept twice with independent numbers: two
different tiles agree in both with a probability near 2^-126, far below that of a memory error.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cmask_lab.compiler.intervals import Int32s, Int64s, IntervalTable, ragged_range
from cmask_lab.compiler.tiles import CELLS_AT_ONCE, CELLS_PER_INTERVAL, query_tile_hulls, row_groups

FINGERPRINTS = 2
TILES_AT_ONCE = 256


def tile_patterns(
    table: IntervalTable, tile: tuple[int, int], tile_row: Int64s, tile_column: Int64s
) -> tuple[Int32s, Int32s]:
    """The distinct patterns of the listed tiles, and which of them each tile has.

    Args:
        table: the intervals.
        tile: ``(q_tile, kv_tile)``.
        tile_row, tile_column: int64 ``(n,)``: the tiles, in ascending (row, column) order.

    Returns:
        int32 ``(patterns, q_tile, kv_tile // 32)``: bit ``c % 32`` of word ``c // 32`` of row ``r`` is cell ``(r, c)``,
        numbered by first appearance; and int32 ``(n,)``, the number of each tile's pattern.

    >>> causal = IntervalTable.from_row_bounds(np.zeros(128, int), np.arange(1, 129), 128)
    >>> patterns, number = tile_patterns(causal, (64, 64), np.array([0, 1]), np.array([0, 1]))
    >>> patterns.shape, number.tolist(), patterns[0, 3].tolist()
    ((1, 64, 2), [0, 0], [15, 0])
    """
    fingerprint = np.zeros((FINGERPRINTS, len(tile_row)), np.uint64)
    row_value, column_value = _random_numbers(tile)
    for own, row, start, stop in _pieces(table, tile, tile_row, tile_column):
        for which in range(FINGERPRINTS):
            value = column_value[which].take(start)
            value -= column_value[which].take(stop)
            value *= row_value[which].take(row)
            np.add.at(fingerprint[which], own, value)
    representative, number = _first_of_equals(fingerprint)
    return _bits(table, tile, tile_row[representative], tile_column[representative]), number


@cache
def _random_numbers(tile: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Odd numbers for every row and every boundary of a tile; the same ones each time, so that results repeat."""
    generator = np.random.default_rng(0x636D61736B)
    shape = (FINGERPRINTS, tile[0] + tile[1] + 1)
    numbers = generator.integers(0, 2**63, shape, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return numbers[:, : tile[0]].copy(), numbers[:, tile[0] :].copy()


def _first_of_equals(fingerprint: np.ndarray) -> tuple[Int64s, Int32s]:
    """Indices of the first tile of every kind in order of appearance, and the kind of each tile."""
    if not fingerprint.size:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    by_value = np.lexsort(fingerprint)
    sorted_values = fingerprint[:, by_value]
    opens = np.append(True, (sorted_values[:, 1:] != sorted_values[:, :-1]).any(axis=0))
    # lexsort is stable: the first of a group of equals is the one that comes first in the list of tiles.
    representative = by_value[opens]
    kind = np.empty(fingerprint.shape[1], np.int64)
    kind[by_value] = np.cumsum(opens) - 1
    by_appearance = np.argsort(representative, kind="stable")
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(rank))
    return representative[by_appearance], rank[kind].astype(np.int32)


def _pieces(table: IntervalTable, tile: tuple[int, int], tile_row: Int64s, tile_column: Int64s):
    """Yield ``(tile number, row in tile, start, stop)`` of what every interval leaves in the listed tiles."""
    q_tile, kv_tile = tile
    shift = kv_tile.bit_length() - 1
    q_tiles = -(-table.q_len // q_tile)
    ptr = np.searchsorted(tile_row, np.arange(q_tiles + 1))
    interval_ptr = table.row_ptr[np.minimum(np.arange(q_tiles + 1) * q_tile, table.q_len)]
    hull_lo, hull_hi = query_tile_hulls(table, q_tile, kv_tile)
    listed = np.flatnonzero(np.diff(ptr))
    width = hull_hi[listed] - hull_lo[listed] + 1
    interval_counts = np.diff(interval_ptr)[listed]
    per_query = np.diff(table.row_ptr)
    for first, last in row_groups(np.maximum(width, interval_counts * CELLS_PER_INTERVAL), CELLS_AT_ONCE):
        rows, counts = listed[first:last], interval_counts[first:last]
        cells = np.cumsum(width[first:last]) - width[first:last]
        # before[cell]: number of the first listed tile that does not stand before this cell of the hulls.
        before = np.zeros(int(width[first:last].sum()) + 1, np.int64)
        mine = slice(ptr[rows[0]], ptr[rows[-1] + 1])
        own_cells = np.repeat(cells - hull_lo[rows], np.diff(ptr)[rows]) + tile_column[mine]
        before[own_cells + 1] = 1
        np.cumsum(before, out=before)
        before += ptr[rows[0]]
        if rows[-1] - rows[0] == len(rows) - 1:
            own = slice(interval_ptr[rows[0]], interval_ptr[rows[-1] + 1])
        else:
            own = ragged_range(interval_ptr[rows], counts)
        start, stop = table.start[own], table.stop[own]
        offset = np.repeat(cells - hull_lo[rows], counts)
        number = before.take((start >> shift) + offset)
        offset += (stop - 1) >> shift
        behind = before.take(offset + 1)
        query = ragged_range(rows * q_tile, np.minimum(q_tile, table.q_len - rows * q_tile))
        row = np.repeat(query & (q_tile - 1), per_query[query])
        edges = (tile_column << shift).astype(np.int32)
        # Most intervals lie in one listed tile: first every interval's first piece, then all others, spread out.
        some = np.flatnonzero(number < behind)
        if len(some) < len(number):
            number, behind, row, start, stop = (a.take(some) for a in (number, behind, row, start, stop))
        yield number, row, *_cut(start, stop, edges.take(number), kv_tile)
        more = behind - number - 1
        some = np.flatnonzero(more)
        if len(some):
            more = more.take(some)
            number = ragged_range(number.take(some) + 1, more)
            row, start, stop = (np.repeat(a.take(some), more) for a in (row, start, stop))
            yield number, row, *_cut(start, stop, edges.take(number), kv_tile)


def _cut(start: NDArray, stop: NDArray, edge: NDArray, kv_tile: int) -> tuple[NDArray, NDArray]:
    """The part of an interval that lies in the tile that begins at ``edge``, counted from there."""
    return np.maximum(start - edge, 0), np.minimum(stop - edge, kv_tile)


def _bits(table: IntervalTable, tile: tuple[int, int], tile_row: Int64s, tile_column: Int64s) -> Int32s:
    """int32 ``(n, q_tile, kv_tile // 32)``: the cells of ``n`` tiles, in ascending (row, column) order."""
    q_tile, kv_tile = tile
    dtype = np.dtype("<u8" if kv_tile % 64 == 0 else "<u4")
    width = 8 * dtype.itemsize
    # below[w, c]: the bits of word w that stand before column c. What an interval covers is the difference of two,
    # and intervals of a row are disjoint, so adding them up sets bits without a carry.
    before = np.clip(np.arange(kv_tile + 1) - np.arange(0, kv_tile, width)[:, None], 0, width).tolist()
    below = np.array([[(1 << bits) - 1 for bits in word] for word in before], dtype)
    words = np.zeros((len(below), len(tile_row) * q_tile), dtype)
    for number, row, start, stop in _pieces(table, tile, tile_row, tile_column):
        cell_row = number * q_tile + row
        for word, bits in zip(words, below, strict=True):
            np.add.at(word, cell_row, bits.take(stop) - bits.take(start))
    packed = np.ascontiguousarray(words.T).view("<i4").reshape(len(tile_row), q_tile, kv_tile // 32)
    return packed.astype(np.int32, copy=False)


def transposed_patterns(patterns: Int32s) -> Int32s:
    """Patterns ``(n, rows, columns // 32)`` with rows and columns exchanged: ``(n, columns, rows // 32)``.

    >>> transposed_patterns(np.array([[[1 << 3]] + [[0]] * 31], np.int32))[0, 3].tolist()
    [1]
    """
    count, rows, words = patterns.shape
    result = np.empty((count, words * 32, rows // 32), np.int32)
    for first in range(0, count, TILES_AT_ONCE):
        some = np.ascontiguousarray(patterns[first : first + TILES_AT_ONCE])
        cells = np.unpackbits(some.view(np.uint8).reshape(len(some), rows, words * 4), axis=2, bitorder="little")
        packed = np.packbits(cells.transpose(0, 2, 1), axis=2, bitorder="little")
        result[first : first + len(some)] = np.ascontiguousarray(packed).view("<i4")
    return result
