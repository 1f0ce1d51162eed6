"""Work lists for the persistent kernels, and patterns in the order in which an accumulator holds its columns.

An *item* is what a program does between reading its first tile and writing its result: a query tile of one head in the
forward pass, a kv tile of one key head in the backward pass (where the descriptor is transposed). An item is one record for
each query head in it (:data:`ITEM_WORDS` int32 words):

====  ============================================================================
0     first position of the tile (queries in forward, keys in backward)
1     batch entry * heads + query head
2, 3  first of the record's partial tiles in ``partial_tile``, and how many
4, 5  first of its runs in ``run_start`` and ``run_stop``, and how many
6     full tiles left for the main loop of the forward kernel, which takes its first tile out
7     pattern of that first tile
====  ============================================================================

In the forward pass a record without any tile gets one partial tile with an empty pattern, so that its output is written
like any other.
"""

from __future__ import annotations

import heapq
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.cost import row_cost
from cmask_lab.compiler.descriptor import Descriptor, encode
from cmask_lab.compiler.tiles import tile_table

ITEM_WORDS = 8
FORWARD_TILES = ((128, 128), (128, 64), (64, 64))
"""Tile sizes that the forward kernel takes."""
BACKWARD_TILE = (128, 128)
GROUP_ITEMS = 256
"""Heads are taken in groups of about so many items. The items of a group run at the same time, so their keys and values
should fit into the L2 cache together; on an H200 heads one by one are best for 256 tile rows (653 against 612 TFLOP/s with
all 16 heads interleaved, causal, 32,768 tokens) and groups of four for 64 (648 against 606)."""
EXACT_ITEMS = 64
"""Up to so many items a program each goes to the program with least work; more are dealt back and forth."""


@dataclass(frozen=True)
class Schedule:
    """What a kernel needs beside the tensors: all of it int32 on one device.

    Attributes:
        tile: ``(q_tile, kv_tile)`` of the tiles.
        program_items: ``(programs + 1,)``: program ``p`` has items ``program_items[p]`` to ``program_items[p + 1]``.
        items: ``(records, ITEM_WORDS)``; as many records an item as it has query heads.
        partial_tile, partial_pattern: ``(n + 1,)``: those of the descriptor; the last one is the empty tile.
        run_start, run_stop: those of the descriptor, and one more word, so that they are never empty.
        patterns: ``(patterns + 2, rows, 4)`` in accumulator order; the last two are the empty and the full pattern.
    """

    tile: tuple[int, int]
    program_items: torch.Tensor
    items: torch.Tensor
    partial_tile: torch.Tensor
    partial_pattern: torch.Tensor
    run_start: torch.Tensor
    run_stop: torch.Tensor
    patterns: torch.Tensor

    def arrays(self) -> tuple[torch.Tensor, ...]:
        """The arrays as the kernels take them."""
        return (
            self.program_items,
            self.items,
            self.partial_tile,
            self.partial_pattern,
            self.run_start,
            self.run_stop,
            self.patterns,
        )

    @property
    def programs(self) -> int:
        """Programs to launch."""
        return self.program_items.shape[0] - 1


_schedules: weakref.WeakKeyDictionary[CompiledMask, dict[Any, Any]] = weakref.WeakKeyDictionary()


def forward_schedule(
    compiled: CompiledMask,
    batch: int,
    heads: int,
    programs: int,
    *,
    tiles: tuple[tuple[int, int], ...] = FORWARD_TILES,
    heads_together: int = 0,
) -> Schedule:
    """The schedule of the forward kernel; made once for each set of arguments.

    Args:
        compiled: the mask, its descriptor as torch tensors.
        batch, heads: of the tensors.
        programs: work lists to make, one a program.
        tiles: tile sizes that the kernel takes; a mask compiled for another is cut into the first of them.
        heads_together: heads that run side by side; 0 chooses by :data:`GROUP_ITEMS`.
    """
    known = _schedules.setdefault(compiled, {})
    key = ("forward", batch, heads, programs, tiles, heads_together)
    if key not in known:
        descriptor = compiled.descriptor
        if compiled.tile not in tiles:
            descriptor = _cut(compiled, tiles[0]).to(descriptor.buffer.device)
        known[key] = make_schedule(
            descriptor, compiled.mask_index, batch, heads, programs, heads_together=heads_together
        )
    return known[key]


def backward_schedule(
    compiled: CompiledMask, batch: int, heads: int, kv_heads: int, programs: int, heads_together: int = 0
) -> Schedule:
    """The schedule of the backward kernel: kv tiles of key heads. Arguments as for :func:`forward_schedule`."""
    known = _schedules.setdefault(compiled, {})
    key = ("backward", batch, heads, kv_heads, programs, heads_together)
    if key not in known:
        if compiled.tile == BACKWARD_TILE:
            descriptor = compiled.transposed
        else:
            descriptor = _cut(compiled, BACKWARD_TILE).transposed().to(compiled.descriptor.buffer.device)
        known[key] = make_schedule(
            descriptor,
            compiled.mask_index,
            batch,
            heads,
            programs,
            members=heads // kv_heads,
            empty_tiles=False,
            heads_together=heads_together,
        )
    return known[key]


def _cut(compiled: CompiledMask, tile: tuple[int, int]) -> Descriptor:
    """The descriptor of the same masks in other tiles."""
    tables = compiled.interval_tables
    return encode(tables, [tile_table(table, tile) for table in tables])


def make_schedule(
    descriptor: Descriptor,
    mask_index: np.ndarray,
    batch: int,
    heads: int,
    programs: int,
    *,
    members: int = 1,
    empty_tiles: bool = True,
    heads_together: int = 0,
) -> Schedule:
    """A schedule from a descriptor on a device.

    Args:
        descriptor: that of the forward pass, or the transposed one.
        mask_index: int32 ``(batch or 1, heads or 1)``: the mask that a batch entry and query head uses.
        members: query heads in an item.
        empty_tiles: whether a record without tiles gets an empty one.
    """
    records, cost = _records(descriptor, empty_tiles)
    tiles = descriptor.q_tiles
    mask_of_head = np.broadcast_to(mask_index, (batch, heads)).reshape(-1, members)
    tile_rows = mask_of_head[:, :, None] * tiles + np.arange(tiles)  # (units, members, tiles)
    unit, tile, work = _in_order(cost[tile_rows].sum(1), heads_together)
    owner = _dealt(work, programs)
    by_program = np.argsort(owner, kind="stable")
    unit, tile = unit[by_program], tile[by_program]
    items = records[tile_rows[unit, :, tile].reshape(-1)]
    items[:, 1] = (unit[:, None] * members + np.arange(members)).reshape(-1)
    program_items = np.append(0, np.cumsum(np.bincount(owner, minlength=programs))).astype(np.int32)
    device = descriptor.buffer.device
    empty_pattern = len(descriptor.patterns)
    return Schedule(
        tile=(descriptor.q_tile, descriptor.kv_tile),
        program_items=torch.from_numpy(program_items).to(device),
        items=torch.from_numpy(items).to(device),
        partial_tile=_with_one_more(descriptor.partial_tile, 0),
        partial_pattern=_with_one_more(descriptor.partial_pattern, empty_pattern),
        run_start=_with_one_more(descriptor.run_start, 0),
        run_stop=_with_one_more(descriptor.run_stop, 0),
        patterns=in_accumulator_order(descriptor.patterns),
    )


def _with_one_more(array: torch.Tensor, value: int) -> torch.Tensor:
    return torch.cat([array, array.new_full((1,), value)])


def _records(descriptor: Descriptor, empty_tiles: bool) -> tuple[np.ndarray, np.ndarray]:
    """One record for every tile row (its head is filled in later), and what each will cost."""
    run_ptr, run_start, run_stop, partial_ptr, pattern = (
        getattr(descriptor, name).cpu().numpy()
        for name in ("run_ptr", "run_start", "run_stop", "partial_ptr", "partial_pattern")
    )
    full = np.diff(np.append(0, np.cumsum(run_stop - run_start))[run_ptr])
    partial = np.diff(partial_ptr)
    has_partial = partial > 0
    empty = (full == 0) & ~has_partial
    empty_pattern, full_pattern = len(descriptor.patterns), len(descriptor.patterns) + 1
    records = np.zeros((len(full), ITEM_WORDS), np.int32)
    records[:, 0] = np.arange(len(full)) % descriptor.q_tiles * descriptor.q_tile
    records[:, 2] = partial_ptr[:-1]
    records[:, 3] = partial
    records[:, 4] = run_ptr[:-1]
    records[:, 5] = np.diff(run_ptr)
    records[:, 6] = full - ~(has_partial | empty)
    records[:, 7] = full_pattern
    records[has_partial, 7] = pattern[partial_ptr[:-1][has_partial]]
    if empty_tiles:
        records[empty, 2] = len(pattern)
        records[empty, 3] = 1
        records[empty, 7] = empty_pattern
    return records, row_cost(full, partial)


def _in_order(cost: np.ndarray, heads_together: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit, tile and cost of every item in the order in which they should start; ``cost`` is ``(units, tiles)``.

    Units in groups; in a group the heaviest tile first, its units side by side.
    """
    units, tiles = cost.shape
    together = heads_together or max(1, -(-GROUP_ITEMS // max(tiles, 1)))
    heaviest_first = np.argsort(-cost, axis=1, kind="stable")
    unit, tile = [], []
    for first in range(0, units, together):
        rows = np.arange(first, min(first + together, units))
        unit.append(np.tile(rows, tiles))
        tile.append(heaviest_first[rows].T.reshape(-1))
    unit, tile = np.concatenate(unit), np.concatenate(tile)
    return unit, tile, cost[unit, tile]


def _dealt(cost: np.ndarray, programs: int) -> np.ndarray:
    """The program of every item: each goes to the one that has least to do so far.

    >>> _dealt(np.array([5.0, 4.0, 3.0, 3.0, 3.0]), 2).tolist()
    [0, 1, 1, 0, 1]
    """
    if len(cost) > EXACT_ITEMS * programs:
        # Long lists even out by themselves: back and forth over the programs.
        turn = np.arange(len(cost)) % (2 * programs)
        return np.minimum(turn, 2 * programs - 1 - turn)
    load = [(0.0, program) for program in range(programs)]
    owner = np.empty(len(cost), np.int64)
    for item, work in enumerate(cost.tolist()):
        least, program = load[0]
        owner[item] = program
        heapq.heapreplace(load, (least + work, program))
    return owner


def in_accumulator_order(patterns: torch.Tensor) -> torch.Tensor:
    """Patterns with bits in accumulator order, and an empty and a full one after them.

    Args:
        patterns: int32 ``(n, rows, columns // 32)``, at most 128 columns.

    Returns:
        int32 ``(n + 2, rows, 4)`` on the same device: bit ``2 k + e`` of word ``w`` is column ``8 k + 2 w + e``. With 64
        columns only the lower 16 bits of a word are used.

    >>> patterns = torch.zeros(1, 1, 4, dtype=torch.int32)
    >>> patterns[0, 0, 1] = 1 << 3                                  # column 35 = 8 * 4 + 2 * 1 + 1
    >>> in_accumulator_order(patterns)[0, 0].tolist()               # bit 2 * 4 + 1 of word 1
    [0, 512, 0, 0]
    """
    count, rows, words = patterns.shape
    if words > 4:
        raise ValueError(f"patterns have {words * 32} columns; the kernels take at most 128")
    result = patterns.new_zeros((count + 2, rows, 4))
    result[count + 1] = -1
    octet = torch.arange(4, device=patterns.device)
    shift = (8 * octet[:, None] + 2 * octet[None, :]).int()  # of octet k in its word, and pair w in its octet
    for word in range(words):
        pairs = (patterns[:, :, word, None, None] >> shift) & 3
        result[:count] |= (pairs << (2 * (4 * word + octet))[:, None].int()).sum(2, dtype=torch.int32)
    return result
