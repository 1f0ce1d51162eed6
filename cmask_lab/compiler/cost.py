"""The cost model: how long a mask's tiles will take, and which tile size takes least.

The unit is the time of one full 128×128 tile in the main loop of the forward kernel. The numbers come from
measurements of the forward kernel on an H200 (bfloat16, head dimension 128, 2026-12-01); "assumed" marks those that
were not measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.tiles import TileMap, tile_table

MASKED_TILE = 1.14
"""A tile with a bit pattern against one without: 569 against 650 TFLOP/s with every causal tile masked on purpose."""

TILE_ROW_START = 1.0
"""Work before and after the loop of one query tile (load Q, first scores, store O). Assumed: about one tile."""

FULL_TILE_TFLOPS = 650.0
"""Rate of the kernel on full tiles of 128×128."""

PROCESSORS = 132
"""Multiprocessors of an H100 or H200."""

RELATIVE_RATE = {(128, 128): 1.0, (128, 64): 0.88, (64, 128): 0.65, (64, 64): 0.65}
"""Matrix rate of a tile size against 128×128: what makes this model agree with the forward pass of the reward-model
mask (0.754, 0.816, 1.041 ms for 128×128, 128×64, 64×64). 64×128 was not measured; it is assumed to be like 64×64."""


def row_cost(full: np.ndarray, partial: np.ndarray) -> np.ndarray:
    """Cost of query tiles with so many full and partial tiles, in full tiles.

    >>> row_cost(np.array([10]), np.array([1]))
    array([12.14])
    """
    return full + MASKED_TILE * partial + TILE_ROW_START


def predicted_cost(tiles: TileMap) -> float:
    """Cost of a whole head, in full 128×128 tiles; work is taken to be spread evenly.

    >>> from cmask_lab.compiler.tiles import tile_table
    >>> predicted_cost(tile_table(IntervalTable.full(256, 256), (128, 128)))
    6.0
    """
    return float(_row_costs(tiles).sum())


def _row_costs(tiles: TileMap) -> np.ndarray:
    rate = RELATIVE_RATE.get((tiles.q_tile, tiles.kv_tile), min(RELATIVE_RATE.values()))
    tile = tiles.q_tile * tiles.kv_tile / (128 * 128) / rate
    in_loop = row_cost(tiles.full_per_row, tiles.partial_per_row) - TILE_ROW_START
    return in_loop * tile + TILE_ROW_START * tiles.q_tile / 128


def predicted_ms(tiles: TileMap, *, heads: int = 1, head_dim: int = 128) -> float:
    """Predicted time of one forward pass over ``heads`` (batch × heads) on an H200, in milliseconds.

    No pass is quicker than its heaviest query tile on one multiprocessor.
    """
    tile_ms = 4 * 128 * 128 * head_dim / (FULL_TILE_TFLOPS * 1e9)  # one tile, if the whole device worked on it
    rows = _row_costs(tiles)
    return float(max(rows.sum() * heads, rows.max(initial=0.0) * PROCESSORS) * tile_ms)


def cheapest_tiles(tables: Sequence[IntervalTable]) -> list[TileMap]:
    """The tile maps of some masks at the tile size with the lowest predicted cost, the first of equals.

    No tiling is cheaper than the visible pairs alone at its rate, so a size that can't win is not tried.

    >>> tiles, = cheapest_tiles([IntervalTable.full(4096, 4096)])
    >>> tiles.q_tile, tiles.kv_tile
    (128, 128)
    """
    visible = sum(table.visible_pairs for table in tables)
    best: list[TileMap] = []
    lowest = np.inf
    for tile in RELATIVE_RATE:
        if best and visible / (128 * 128) / RELATIVE_RATE[tile] >= lowest:
            continue
        maps = [tile_table(table, tile) for table in tables]
        cost = sum(predicted_cost(tiles) for tiles in maps)
        if cost < lowest:
            best, lowest = maps, cost
    return best
