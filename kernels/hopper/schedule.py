"""Work lists for the persistent kernels, and patterns in the order in which an accumulator holds its columns.

An *item* is what a program does between reading its first tile and writing its result: a query tile of one head in the
forward pass, a kv tile of one key head in the backward pass (where the descriptor is transposed). An item is one record
for each query head in it (:data:`ITEM_WORDS` int32 words):

====  ============================================================================
0     first position of the tile (queries in forward, keys in backward)
1     batch entry * heads + query head
2, 3  first of the record's partial tiles in ``partial_tile``, and how many
4, 5  first of its runs in ``run_start`` and ``run_stop``, and how many
6     full tiles left for the main loop of the forward kernel, which takes its first tile out
7-9   pattern of that first tile; three where three consumers have one each
====  ============================================================================

In the forward pass a record without any tile gets one partial tile with an empty pattern, so that its output is written
like any other.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cmask_lab.kernels.mask_lists import once_a_mask

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.cost import row_cost
from cmask_lab.compiler.descriptor import Descriptor, encode
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.tiles import tile_table

ITEM_WORDS = 10
FORWARD_TILES = ((128, 128), (128, 64), (64, 64))
"""Tile sizes that the forward kernel takes."""
THREE_CONSUMERS = (64, 128)
"""Tiles of which the forward kernel can take three at a time for head dimension 64, one a consumer."""
LONG_ROWS = 24
"""Tiles a row from which that pays: with 128 a row (causal, 32,768 tokens) 567 against 522 TFLOP/s, with 9 (a window
of 1,024) 0.40 against 0.376 ms, on an H200, 2026-12-01; the threshold between them is a guess."""
BACKWARD_TILE = (128, 128)
GROUP_ITEMS = 256
"""Heads are taken in groups of about so many items. The items of a group run at the same time, so their keys and values
should fit into the L2 cache together; on an H200 heads one by one are best for 256 tile rows (653 against 612 TFLOP/s
with all 16 heads interleaved, causal, 32,768 tokens) and groups of four for 64 (648 against 606)."""
EXACT_ITEMS = 64
"""Up to so many items a program each goes to the program with least work; more are dealt back and forth."""


@dataclass(frozen=True)
class Schedule:
    """What a kernel needs beside the tensors: all of it int32 on one device.

    Attributes:
        tile: ``(q_tile, kv_tile)`` of the tiles.
        program_items: ``(programs + 1,)``: program ``p`` has items ``program_items[p]`` to ``program_items[p + 1]``.
        items: ``(records, ITEM_WORDS)``; as many records an item as it has query heads.
        partial_tile: ``(n + 1,)``: the last one is the empty tile.
        partial_pattern: ``(n + 1,)`` or ``(n + 1, 3)``.
        run_start, run_stop: one word longer than the lists, so that they are never empty.
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


@once_a_mask
def _schedules(_: CompiledMask) -> dict[tuple[Any, ...], Schedule]:
    """Those made so far, by their arguments."""
    return {}


def three_consumers(compiled: CompiledMask, head_dim: int) -> bool:
    """Whether the forward kernel should run with three consumers: heads are small and rows of tiles long."""
    tiles = sum(each.full_tiles + each.partial_tiles for each in compiled.tile_maps)
    rows = sum(each.q_tiles for each in compiled.tile_maps)
    return head_dim <= 64 and compiled.tile == (128, 128) and tiles >= LONG_ROWS * rows


def forward_schedule(
    compiled: CompiledMask,
    batch: int,
    heads: int,
    programs: int,
    *,
    tiles: tuple[tuple[int, int], ...] = FORWARD_TILES,
) -> Schedule:
    """The schedule of the forward kernel; made once for each set of arguments.

    Args:
        compiled: the mask, its descriptor as torch tensors.
        batch, heads: of the tensors.
        programs: work lists to make, one a program.
        tiles: tile sizes that the kernel takes; a mask compiled for another is cut into the first of them. For
            ``(THREE_CONSUMERS,)`` three tile rows make one.
    """
    known = _schedules(compiled)
    key = ("forward", batch, heads, programs, tiles)
    if key not in known:
        descriptor = compiled.descriptor if compiled.tile in tiles else _cut(compiled, tiles[0])
        stream = three_rows(descriptor) if tiles == (THREE_CONSUMERS,) else tile_rows(descriptor)
        known[key] = make_schedule(stream, compiled, descriptor.patterns, batch, heads, programs)
    return known[key]


def backward_schedule(compiled: CompiledMask, batch: int, heads: int, kv_heads: int, programs: int) -> Schedule:
    """The schedule of the backward kernel: kv tiles of key heads. Arguments as for :func:`forward_schedule`."""
    known = _schedules(compiled)
    key = ("backward", batch, heads, kv_heads, programs)
    if key not in known:
        fits = compiled.tile == BACKWARD_TILE
        descriptor = compiled.transposed if fits else _cut(compiled, BACKWARD_TILE).transposed()
        known[key] = make_schedule(
            tile_rows(descriptor),
            compiled,
            descriptor.patterns,
            batch,
            heads,
            programs,
            members=heads // kv_heads,
            empty_tiles=False,
        )
    return known[key]


def _cut(compiled: CompiledMask, tile: tuple[int, int]) -> Descriptor:
    """The descriptor of the same masks in other tiles, as NumPy arrays."""
    tables = compiled.interval_tables
    return encode(tables, [tile_table(table, tile) for table in tables])


@dataclass(frozen=True)
class Stream:
    """The tiles that the kernel visits, row by row, as NumPy arrays: a descriptor's, or three of its rows made one.

    Attributes:
        tile: ``(rows, columns)`` in positions.
        row_count: tile rows of one mask.
        run_ptr, run_start, run_stop, partial_ptr, partial_tile: as in a descriptor.
        partial_pattern: ``(n, 1)`` or ``(n, 3)``; the numbers ``patterns`` and ``patterns + 1`` are the empty and the
            full pattern.
        patterns: distinct patterns, without these two.
    """

    tile: tuple[int, int]
    row_count: int
    run_ptr: np.ndarray
    run_start: np.ndarray
    run_stop: np.ndarray
    partial_ptr: np.ndarray
    partial_tile: np.ndarray
    partial_pattern: np.ndarray
    patterns: int


def tile_rows(descriptor: Descriptor) -> Stream:
    """The rows of a descriptor as they are."""
    names = ("run_ptr", "run_start", "run_stop", "partial_ptr", "partial_tile", "partial_pattern")
    run_ptr, run_start, run_stop, partial_ptr, partial_tile, pattern = (
        array.cpu().numpy() if isinstance(array, torch.Tensor) else array
        for array in (getattr(descriptor, name) for name in names)
    )
    return Stream(
        tile=(descriptor.q_tile, descriptor.kv_tile),
        row_count=descriptor.q_tiles,
        run_ptr=run_ptr,
        run_start=run_start,
        run_stop=run_stop,
        partial_ptr=partial_ptr,
        partial_tile=partial_tile,
        partial_pattern=pattern[:, None],
        patterns=len(descriptor.patterns),
    )


def three_rows(descriptor: Descriptor) -> Stream:
    """Three neighbouring tile rows of a mask as one: runs where all three are full, partial tiles where any sees
    something.

    Each of three consumers has its own pattern of a partial tile, which may then be the empty or the full one.
    """
    single = tile_rows(descriptor)
    count, columns, masks = single.row_count, descriptor.kv_tiles, descriptor.masks
    triples = -(-count // 3)
    run_row = np.repeat(np.arange(masks * count), np.diff(single.run_ptr))
    partial_row = np.repeat(np.arange(masks * count), np.diff(single.partial_ptr))
    full = IntervalTable.from_intervals(run_row, single.run_start, single.run_stop, masks * count, columns)
    touched = full | IntervalTable.from_intervals(
        partial_row, single.partial_tile, single.partial_tile + 1, masks * count, columns
    )
    # Row numbers of the triples' members; past a mask's last row stands one more row, of which everything is full.
    member = np.arange(masks)[:, None, None] * count + np.arange(3 * triples).reshape(triples, 3)
    member = np.where(np.arange(3 * triples).reshape(triples, 3) < count, member, masks * count).reshape(-1, 3)
    everything, nothing = IntervalTable.full(1, columns), IntervalTable.empty(1, columns)
    all_full = IntervalTable.concatenate([full, everything])
    any_touched = IntervalTable.concatenate([touched, nothing])
    runs, seen = (table.take_rows(member[:, 0]) for table in (all_full, any_touched))
    for c in (1, 2):
        runs = runs & all_full.take_rows(member[:, c])
        seen = seen | any_touched.take_rows(member[:, c])
    runs = runs & seen
    partial = seen - runs
    length = partial.stop - partial.start
    row = np.repeat(partial.rows_per_interval(), length)
    tile = np.arange(len(row)) - np.repeat(np.cumsum(length) - length - partial.start, length)
    place = member[row] * columns + tile[:, None]
    # A member's pattern: that of its partial tile, or the full one where it lies in a run, or else the empty one.
    pattern = np.full(place.shape, single.patterns)
    run_begin = run_row * columns + single.run_start
    at = np.searchsorted(run_begin, place, "right") - 1
    if len(run_begin):
        pattern[(at >= 0) & (place < (run_begin + single.run_stop - single.run_start)[at])] = single.patterns + 1
    listed = partial_row * columns + single.partial_tile
    at = np.minimum(np.searchsorted(listed, place), max(len(listed) - 1, 0))
    if len(listed):
        same = listed[at] == place
        pattern[same] = single.partial_pattern[at[same], 0]
    rows = np.arange(masks * triples + 1)
    return Stream(
        tile=(3 * descriptor.q_tile, descriptor.kv_tile),
        row_count=triples,
        run_ptr=runs.row_ptr,
        run_start=runs.start,
        run_stop=runs.stop,
        partial_ptr=np.searchsorted(row, rows),
        partial_tile=tile,
        partial_pattern=pattern,
        patterns=single.patterns,
    )


def make_schedule(
    stream: Stream,
    compiled: CompiledMask,
    patterns: torch.Tensor | np.ndarray,
    batch: int,
    heads: int,
    programs: int,
    *,
    members: int = 1,
    empty_tiles: bool = True,
) -> Schedule:
    """A schedule on the device of the compiled mask.

    Args:
        stream: of the forward pass, or of the transposed descriptor.
        compiled: for ``mask_index`` and the device.
        patterns: int32 ``(n, rows, columns // 32)``.
        members: query heads in an item.
        empty_tiles: whether a record without tiles gets an empty one.
    """
    device = compiled.descriptor.buffer.device
    records, cost = _records(stream, empty_tiles)
    mask_of_head = np.broadcast_to(compiled.mask_index, (batch, heads)).reshape(-1, members)
    rows = mask_of_head[:, :, None] * stream.row_count + np.arange(stream.row_count)  # (units, members, tiles)
    unit, tile, work = _in_order(cost[rows].sum(1))
    owner = _dealt(work, programs)
    by_program = np.argsort(owner, kind="stable")
    unit, tile = unit[by_program], tile[by_program]
    items = records[rows[unit, :, tile].reshape(-1)]
    items[:, 1] = (unit[:, None] * members + np.arange(members)).reshape(-1)
    numbers = stream.partial_pattern.shape[1]
    arrays = [
        np.append(0, np.cumsum(np.bincount(owner, minlength=programs))),
        items.reshape(-1),
        np.append(stream.partial_tile, 0),
        np.append(stream.partial_pattern, [stream.patterns] * numbers),
        np.append(stream.run_start, 0),
        np.append(stream.run_stop, 0),
    ]
    # One copy to the device; every array at a multiple of 16 bytes.
    padded = [np.pad(array, (0, -len(array) % 4)).astype(np.int32) for array in arrays]
    buffer = torch.from_numpy(np.concatenate(padded)).to(device)
    views = [part[: len(array)] for part, array in zip(buffer.split([len(p) for p in padded]), arrays, strict=True)]
    given = torch.as_tensor(np.array(patterns), device=device) if isinstance(patterns, np.ndarray) else patterns
    return Schedule(stream.tile, views[0], views[1].view(-1, ITEM_WORDS), *views[2:], in_accumulator_order(given))


def _records(stream: Stream, empty_tiles: bool) -> tuple[np.ndarray, np.ndarray]:
    """One record for every tile row (its head is filled in later), and what each will cost."""
    full = np.diff(np.append(0, np.cumsum(stream.run_stop - stream.run_start))[stream.run_ptr])
    partial = np.diff(stream.partial_ptr)
    has_partial = partial > 0
    empty = (full == 0) & ~has_partial
    records = np.zeros((len(full), ITEM_WORDS), np.int32)
    records[:, 0] = np.arange(len(full)) % stream.row_count * stream.tile[0]
    records[:, 2] = stream.partial_ptr[:-1]
    records[:, 3] = partial
    records[:, 4] = stream.run_ptr[:-1]
    records[:, 5] = np.diff(stream.run_ptr)
    records[:, 6] = full - ~(has_partial | empty)
    records[:, 7:] = stream.patterns + 1
    records[has_partial, 7:] = stream.partial_pattern[stream.partial_ptr[:-1][has_partial]]
    if empty_tiles:
        records[empty, 2] = len(stream.partial_tile)
        records[empty, 3] = 1
        records[empty, 7:] = stream.patterns
    return records, row_cost(full, partial)


def _in_order(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit, tile and cost of every item in the order in which they should start; ``cost`` is ``(units, tiles)``.

    Units in groups; in a group the heaviest tile first, its units side by side.
    """
    units, tiles = cost.shape
    together = max(1, -(-GROUP_ITEMS // max(tiles, 1)))
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
        int32 ``(n + 2, rows, 4)`` on the same device: bit ``2 k + e`` of word ``w`` is column ``8 k + 2 w + e``. With
        64 columns only the lower 16 bits of a word are used.

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
