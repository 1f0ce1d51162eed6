"""A mask at the lengths it is exported for: what every target starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cmask_lab.compiler.compile import distinct_masks
from cmask_lab.compiler.intervals import Int32s, Int64s, IntervalTable
from cmask_lab.compiler.tiles import TileMap, tile_table
from cmask_lab.masks import per_batch, per_head
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.lengths import own_lengths
from cmask_lab.masks.mask import Mask, checked_mask
from cmask_lab.short_text import shortened

TITLE_LIMIT = 60
"""Characters of a formula in the title of an exported module."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Query rows ``q_start … q_start + q_len - 1`` and keys ``0 … kv_len - 1`` of a mask.

    Attributes:
        masks: the different masks, if the mask differs by batch entry or head; else the mask alone.
        index: int32 ``(batch or 1, heads or 1)``: which of them a batch entry and head uses.
    """

    mask: Mask
    q_len: int
    kv_len: int
    q_start: int
    masks: tuple[Mask, ...]
    index: Int32s

    @classmethod
    def of(cls, mask: Mask, q_len: int | None, kv_len: int | None, q_start: int, *, where: str) -> Plane:
        """The plane; lengths left out are those that the mask was made for.

        Raises:
            TypeError: no mask, or lengths that are no integers.
            ValueError: lengths that are needed and can't be told, or that the mask does not fit.
        """
        checked_mask(mask, f"{where}: the mask")
        if q_len is None:
            own = own_lengths(mask)
            if own is None:
                text = shortened(repr(mask), TITLE_LIMIT)
                raise ValueError(f"{where}: {text} has no length of its own; pass q_len, and kv_len if it differs")
            q_len = max(own[0] - q_start, 0)
            if kv_len is None:
                kv_len = max(own[1], q_start + q_len)
        q_len, q_start = integer(q_len, f"{where}: q_len"), integer(q_start, f"{where}: q_start")
        masks, index = distinct_masks(mask)
        windows = [each._window(q_len, kv_len, q_start) for each in masks]
        return cls(mask, q_len, windows[0].kv_len, q_start, tuple(masks), index)

    @cached_property
    def tables(self) -> tuple[IntervalTable, ...]:
        """The intervals of every different mask."""
        return tuple(mask.intervals(self.q_len, self.kv_len, self.q_start) for mask in self.masks)

    @property
    def table(self) -> IntervalTable:
        """The intervals of the one mask; for targets that take no other."""
        return self.tables[0]

    def tiles(self, tile: tuple[int, int]) -> TileLists:
        """The full and partial tiles of all the masks; sides of any power of two."""
        return TileLists.of([tile_table(table, tile) for table in self.tables])

    @property
    def title(self) -> str:
        """The formula and the lengths, for the first line of a source."""
        part = f", queries from {self.q_start} on" if self.q_start else ""
        return f"{shortened(self.mask.formula, TITLE_LIMIT)} ({self.q_len} queries, {self.kv_len} keys{part})"


@dataclass(frozen=True)
class TileLists:
    """Tiles by tile row, as block-sparse libraries list them; a tile row is ``mask number * q_tiles + query tile``.

    Attributes:
        run_row, run_start, run_stop: full kv tiles ``[run_start, run_stop)`` of a tile row.
        partial_row, partial_tile: every other tile that is not empty.

    A tile that hangs over the last row or column is never full here: libraries that test no bounds on full tiles stay
    inside, and PyTorch's ``create_block_mask`` makes the same lists.
    """

    q_tiles: int
    kv_tiles: int
    masks: int
    run_row: Int64s
    run_start: Int64s
    run_stop: Int64s
    partial_row: Int64s
    partial_tile: Int64s

    @classmethod
    def of(cls, maps: list[TileMap]) -> TileLists:
        """The lists of several masks over one plane, one mask's tile rows after another's."""
        parts = [_ragged_demoted(tiles, number * tiles.q_tiles) for number, tiles in enumerate(maps)]
        first = maps[0]
        return cls(first.q_tiles, first.kv_tiles, len(maps), *(np.concatenate(p) for p in zip(*parts, strict=True)))


def _ragged_demoted(tiles: TileMap, first_row: int) -> tuple[Int64s, ...]:
    row, start, stop = tiles.run_row, tiles.run_start, tiles.run_stop
    demoted_row, demoted_tile = [tiles.partial_row], [tiles.partial_tile]
    if tiles.kv_len % tiles.kv_tile:
        at_end = stop == tiles.kv_tiles
        demoted_row.append(row[at_end])
        demoted_tile.append(stop[at_end] - 1)
        stop = stop - at_end
    if tiles.q_len % tiles.q_tile:
        last = row == tiles.q_tiles - 1
        size = (stop - start)[last]
        demoted_row.append(np.repeat(row[last], size))
        demoted_tile.append(np.concatenate([np.arange(0), *map(np.arange, start[last], stop[last])]))
        row, start, stop = row[~last], start[~last], stop[~last]
    kept = start < stop
    partial_row, partial_tile = np.concatenate(demoted_row), np.concatenate(demoted_tile)
    in_order = np.lexsort((partial_tile, partial_row))
    return (
        row[kept] + first_row,
        start[kept],
        stop[kept],
        partial_row[in_order] + first_row,
        partial_tile[in_order],
    )


def block_sides(block_size: tuple[int, int] | int) -> tuple[int, int]:
    """``(queries, keys)`` of a block size as given.

    Raises:
        ValueError: no two powers of two.

    >>> block_sides(64), block_sides((256, 128))
    ((64, 64), (256, 128))
    """
    sides = (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)
    if len(sides) != 2 or any(not isinstance(side, int) or side < 1 or side & (side - 1) for side in sides):
        raise ValueError(f"export: block_size is {block_size!r}; give (queries, keys), both powers of two")
    return sides


def one_mask_only(plane: Plane, target: str) -> str | None:
    """Why a target that knows one mask for all heads can't take this one; None if it can."""
    if len(plane.masks) == 1:
        return None
    kinds = " and ".join(
        name for name, count in zip(("batch entry", "head"), plane.index.shape, strict=True) if count > 1
    )
    return f"{target} has one mask for the whole call and this one differs by {kinds}; export each of its masks alone"


def no_blocks(plane: Plane) -> str | None:
    """Why a library that lists blocks can't take a plane without queries or keys."""
    if plane.q_len and plane.kv_len:
        return None
    return f"there are {plane.q_len} queries and {plane.kv_len} keys; lists of blocks need at least one of each"


def assembled(masks: Sequence[Sequence[Mask]]) -> Mask:
    """One mask from those of every batch entry and head; entries and heads that agree are told apart no longer.

    >>> import cmask_lab as cm
    >>> assembled([[cm.causal(), cm.full()], [cm.causal(), cm.full()]])
    cm.per_head([cm.causal(), cm.full()])
    """
    entries = [row[0] if len(set(row)) == 1 else per_head(row) for row in masks]
    return entries[0] if len(set(entries)) == 1 else per_batch(entries)
