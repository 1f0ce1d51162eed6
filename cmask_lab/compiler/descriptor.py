"""The descriptor: a few small int32 arrays, and all of a mask that a kernel ever reads.

A *tile row* is one query tile of one distinct mask (masks may differ by batch entry and by head): number
``mask * q_tiles + query tile``. For each tile row the kernel finds the runs of full tiles and the partial tiles with
their patterns. All arrays lie one after another in one buffer, each at a multiple of 16 bytes, so that one copy takes
the whole descriptor to a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cmask_lab.compiler.cost import row_cost
from cmask_lab.compiler.intervals import Int32s, Int64s, IntervalTable
from cmask_lab.compiler.patterns import tile_patterns, transposed_patterns
from cmask_lab.compiler.tiles import TileMap

if TYPE_CHECKING:
    import torch

ALIGNMENT = 4
"""Arrays begin at multiples of this many int32 words (16 bytes: the widest load of a GPU thread)."""


@dataclass(frozen=True, eq=False)
class Descriptor:
    """What a kernel reads; NumPy arrays, or torch tensors after :meth:`to`. All arrays are int32.

    Attributes:
        q_tile, kv_tile: tile size in positions.
        q_len, kv_len: the plane in positions.
        masks: number of distinct masks; there are ``R = masks * q_tiles`` tile rows.
        run_ptr: ``(R + 1,)``: the runs of tile row ``r`` are ``run_ptr[r]`` to ``run_ptr[r + 1]``.
        run_start, run_stop: ``(runs,)``: a run is the full kv tiles ``[run_start, run_stop)``.
        partial_ptr: ``(R + 1,)``: the same for partial tiles.
        partial_tile: ``(n,)``: kv tile number, ascending in a tile row.
        partial_pattern: ``(n,)``: pattern number.
        patterns: ``(patterns, q_tile, kv_tile // 32)``: bit ``c % 32`` of word ``c // 32`` of row ``r`` is cell
            ``(r, c)``.
        order: ``(R,)``: tile rows, the one with most work first.
        buffer: ``(words,)``: the one piece of memory that all of them are views of.

    A tile in a ragged last column (``kv_len`` not a multiple of ``kv_tile``) is always listed as partial, with zero
    bits from ``kv_len`` on, so that a kernel needs no bound test on full tiles. Rows from ``q_len`` on have zero bits.
    """

    q_tile: int
    kv_tile: int
    q_len: int
    kv_len: int
    masks: int
    run_ptr: Any
    run_start: Any
    run_stop: Any
    partial_ptr: Any
    partial_tile: Any
    partial_pattern: Any
    patterns: Any
    order: Any
    buffer: Any

    @property
    def q_tiles(self) -> int:
        """Query tiles of one mask."""
        return -(-self.q_len // self.q_tile)

    @property
    def kv_tiles(self) -> int:
        """Kv tiles of one mask."""
        return -(-self.kv_len // self.kv_tile)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer: what lies on the device."""
        return 4 * self.buffer.shape[0]

    def arrays(self) -> dict[str, Any]:
        """The arrays by name, in the order in which they lie in the buffer."""
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in names[names.index("run_ptr") : names.index("buffer")]}

    def to(self, device: str | torch.device) -> Descriptor:
        """The same descriptor as torch tensors on ``device``; one copy of the buffer."""
        import torch

        source = self.buffer if isinstance(self.buffer, torch.Tensor) else torch.tensor(self.buffer)
        buffer = source.to(device)
        return replace(self, buffer=buffer, **_views(buffer, {n: a.shape for n, a in self.arrays().items()}))

    def transposed(self) -> Descriptor:
        """The descriptor of the transposed plane, for the backward pass: tile rows are kv tiles, columns query tiles.

        Needs NumPy arrays. Runs are transposed as intervals of tiles, so the work goes with the number of runs.
        """
        runs, tile_rows, columns, numbers = [], [], [], []
        for mask in range(self.masks):
            rows = slice(mask * self.q_tiles, (mask + 1) * self.q_tiles + 1)
            ptr, part = self.run_ptr[rows], self.partial_ptr[rows]
            own = slice(ptr[0], ptr[-1])
            full = IntervalTable.from_row_ptr(ptr - ptr[0], self.run_start[own], self.run_stop[own], self.kv_tiles)
            runs.append(full.transpose())
            own = slice(part[0], part[-1])
            query_tile = np.repeat(np.arange(self.q_tiles), np.diff(part))
            by_key = np.lexsort((query_tile, self.partial_tile[own]))
            tile_rows.append(mask * self.kv_tiles + self.partial_tile[own][by_key])
            columns.append(query_tile[by_key])
            numbers.append(self.partial_pattern[own][by_key])
        count = self.masks * self.kv_tiles
        run_row = np.concatenate([mask * self.kv_tiles + t.rows_per_interval() for mask, t in enumerate(runs)])
        return _assembled(
            (self.kv_tile, self.q_tile, self.kv_len, self.q_len, self.masks),
            (run_row, np.concatenate([t.start for t in runs]), np.concatenate([t.stop for t in runs])),
            (np.concatenate(tile_rows), np.concatenate(columns), np.concatenate(numbers)),
            transposed_patterns(self.patterns),
            count,
        )


def encode(tables: Sequence[IntervalTable], tile_maps: Sequence[TileMap]) -> Descriptor:
    """The descriptor of one or several distinct masks over the same plane, cut into the same tiles.

    >>> from cmask_lab.compiler.tiles import tile_table
    >>> causal = IntervalTable.from_row_bounds(np.zeros(256, int), np.arange(1, 257), 256)
    >>> descriptor = encode([causal], [tile_table(causal, (128, 128))])
    >>> descriptor.run_start.tolist(), descriptor.partial_tile.tolist(), descriptor.patterns.shape
    ([0], [0, 1], (1, 128, 4))
    """
    first = tile_maps[0]
    tile = (first.q_tile, first.kv_tile)
    runs, partials, patterns, known = [], [], [], 0
    for number, (table, tiles) in enumerate(zip(tables, tile_maps, strict=True)):
        run_row, run_start, run_stop, row, column = _masked_last_column(tiles)
        words, pattern = tile_patterns(table, tile, row, column)
        base = number * first.q_tiles
        runs.append((run_row + base, run_start, run_stop))
        partials.append((row + base, column, pattern + known))
        patterns.append(words)
        known += len(words)
    words, renumbered = _shared(np.concatenate(patterns)) if len(tables) > 1 else (patterns[0], None)
    tile_row, column, pattern = (np.concatenate(part) for part in zip(*partials, strict=True))
    return _assembled(
        (*tile, first.q_len, first.kv_len, len(tables)),
        tuple(np.concatenate(part) for part in zip(*runs, strict=True)),
        (tile_row, column, pattern if renumbered is None else renumbered[pattern]),
        words,
        len(tables) * first.q_tiles,
    )


def _shared(patterns: Int32s) -> tuple[Int32s, Int32s]:
    """Patterns that several masks have in common stored once; and the new number of each old one."""
    flat = patterns.reshape(len(patterns), patterns.shape[1] * patterns.shape[2])
    _, first, inverse = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    return patterns[first], inverse.reshape(-1).astype(np.int32)


def _masked_last_column(tiles: TileMap) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Runs and partial tiles, with full tiles of a ragged last column moved to the partial ones."""
    run_row, run_start, run_stop = tiles.run_row, tiles.run_start, tiles.run_stop
    row, column = tiles.partial_row, tiles.partial_tile
    if tiles.kv_len % tiles.kv_tile:
        ragged = run_stop == tiles.kv_tiles
        row = np.concatenate([row, run_row[ragged]])
        column = np.concatenate([column, np.full(ragged.sum(), tiles.kv_tiles - 1)])
        in_order = np.lexsort((column, row))
        row, column = row[in_order], column[in_order]
        run_stop = run_stop - ragged
        kept = run_start < run_stop
        run_row, run_start, run_stop = run_row[kept], run_start[kept], run_stop[kept]
    return run_row, run_start, run_stop, row, column


def _assembled(
    plane: tuple[int, int, int, int, int],
    runs: tuple[Int64s, ...],
    partials: tuple[np.ndarray, ...],
    patterns: Int32s,
    tile_rows: int,
) -> Descriptor:
    run_row, run_start, run_stop = runs
    partial_row, partial_tile, partial_pattern = partials
    rows = np.arange(tile_rows + 1)
    full = np.bincount(run_row, weights=run_stop - run_start, minlength=tile_rows)
    cost = row_cost(full, np.bincount(partial_row, minlength=tile_rows))
    values = {
        "run_ptr": np.searchsorted(run_row, rows),
        "run_start": run_start,
        "run_stop": run_stop,
        "partial_ptr": np.searchsorted(partial_row, rows),
        "partial_tile": partial_tile,
        "partial_pattern": partial_pattern,
        "patterns": patterns,
        "order": np.argsort(-cost, kind="stable"),
    }
    shapes = {name: value.shape for name, value in values.items()}
    buffer = np.zeros(sum(_padded(shape) for shape in shapes.values()), np.int32)
    views = _views(buffer, shapes)
    for name, value in values.items():
        views[name][...] = value
    buffer.flags.writeable = False
    return Descriptor(*plane, **_views(buffer, shapes), buffer=buffer)


def _padded(shape: tuple[int, ...]) -> int:
    return -(-int(np.prod(shape)) // ALIGNMENT) * ALIGNMENT


def _views(buffer: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    views, first = {}, 0
    for name, shape in shapes.items():
        views[name] = buffer[first : first + int(np.prod(shape))].reshape(shape)
        first += _padded(shape)
    return views
