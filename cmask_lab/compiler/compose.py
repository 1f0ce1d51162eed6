"""Descriptions made of smaller ones: a table taken apart into boxes, panels, global tokens, tiles and strands.

Like the guesses of :mod:`cmask_lab.compiler.recognise` these are proposals, which whoever asks compares with the table.
``describe`` answers for a part, whose rows and keys are counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.compiler.recognise import seen_rows
from cmask_lab.compiler.strands import strands
from cmask_lab.masks import regions
from cmask_lab.masks.combinators import Or
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import repeat
from cmask_lab.masks.tables import documents, from_table, tiles, tree

Describe = Callable[[IntervalTable], Mask]

MOST_PARTS = 48
"""Regions that a description may be made of; more than that nobody edits by hand."""

MOST_BOXES = 4096
"""Boxes that are compared one by one."""

SHORT_STRAND = 4
"""Strands of fewer rows than this stay explicit where there are too many strands."""

TILE_CELLS = 4096
"""The largest matrix of tiles that is still called short."""

SYMMETRIC_INTERVALS = 1 << 20
"""Tables with more intervals than this are not transposed to see whether the causal half hides something simple."""


def compositions(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """Descriptions that need no look into parts."""
    if q_start == 0:
        yield from _tree(table)
        yield from _equal_rows(table)
    yield from _tiles(table, q_start)
    yield from _nearly(table, q_start)
    yield from _strands(table, q_start)


def compositions_of_parts(table: IntervalTable, describe: Describe, *, top: bool) -> Iterator[Mask]:
    """Descriptions made of described parts; a plane is cut in quarters only at the ``top``."""
    yield from _global_tokens(table, describe)
    yield from _under_causal(table, describe)
    yield from _panels(table, describe)
    if top:
        yield from _quarters(table, describe)


def explicit(table: IntervalTable, q_start: int = 0) -> Mask:
    """The intervals themselves, row 0 at ``q_start``."""
    return from_table(IntervalTable.concatenate([IntervalTable.empty(q_start, table.kv_len), table]))


# Boxes -------------------------------------------------------------------------------------------------------------


def boxes(table: IntervalTable, describe: Describe) -> Iterator[Mask]:
    """Square boxes on the diagonal that don't see one another: documents, or a mask of its own in each.

    Or boxes that are seen in both directions, in a causal plane.
    """
    yield from _over_causal(table)
    sizes = box_sizes(table)
    if len(sizes) < 2:
        return
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    model = describe(_box(table, offsets, int(np.argmax(sizes))))
    # What is true of the largest box is mostly true of all: in a box of one token every mask looks alike.
    if model == regions.full():
        yield documents(sizes)
    yield documents(sizes) & model
    yield model.repeat(sizes)
    if len(sizes) > MOST_BOXES:
        return
    parts = [_box(table, offsets, number) for number in range(len(sizes))]
    different = {(part.q_len, part.line.tobytes()): part for part in parts}
    if len(different) <= MOST_PARTS:
        masks = {key: model if _fits(model, part) else describe(part) for key, part in different.items()}
        yield repeat(sizes, [masks[part.q_len, part.line.tobytes()] for part in parts])


def box_sizes(table: IntervalTable) -> list[int]:
    """Sizes of the boxes from the first token on; what neither sees nor is seen is one box where it stands together.

    >>> box_sizes(IntervalTable.from_row_bounds([0, 0, 2, 3], [2, 2, 3, 4], kv_len=4))
    [2, 1, 1]
    """
    length = min(table.q_len, table.kv_len)
    rows = seen_rows(table)
    low, high = np.full(table.q_len, table.kv_len + 1), np.zeros(table.q_len, np.int64)
    low[rows], high[rows] = (side[rows] for side in table.bounds())
    if high.max(initial=0) > length:
        return []
    # A cut at p: rows before p see nothing from p on, rows from p on nothing before it.
    reached = np.concatenate([[0], np.maximum.accumulate(high)])[: length + 1]
    needed = np.append(np.minimum.accumulate(low[::-1])[::-1], table.kv_len + 1)[: length + 1]
    position = np.arange(length + 1)
    cuts = position[(reached <= position) & (needed >= position)]
    seen = np.concatenate([[0], np.cumsum(np.diff(table.row_ptr) > 0)])
    blank = seen[cuts[1:]] == seen[cuts[:-1]]
    kept = np.ones(len(cuts), np.bool_)
    kept[1:-1] = ~(blank[1:] & blank[:-1])
    if len(blank) and blank[-1]:
        kept[-1] = False  # an empty tail needs no box
    return np.diff(cuts[kept]).tolist()


def _box(table: IntervalTable, offsets: Int64s, number: int) -> IntervalTable:
    side = int(offsets[number]), int(offsets[number + 1])
    return _part(table, side, side)


def _part(table: IntervalTable, q: tuple[int, int], k: tuple[int, int]) -> IntervalTable:
    """The queries and keys of a box, counted from its corner."""
    return table.take_rows(np.arange(*q)).shift(-k[0], k[1] - k[0])


def _fits(mask: Mask, box: IntervalTable) -> bool:
    """Whether the mask shows the box."""
    return max(mask.extent[0] or 0, mask.extent[1] or 0) <= box.q_len and mask.intervals(box.q_len) == box


# Around a causal diagonal ------------------------------------------------------------------------------------------


def _over_causal(table: IntervalTable) -> Iterator[Mask]:
    """Causal, and squares on the diagonal that are seen in both directions: images in text."""
    rows = np.arange(table.q_len)
    if (np.diff(table.row_ptr) == 0).any() or table.kv_len < table.q_len:
        return
    first = table.row_ptr[:-1]
    if table.start[first].any() or (table.stop[first] <= rows).any():
        return
    high = table.bounds()[1]
    # Query i of a square sees keys up to its last: the square's last row sees nothing beyond, but belongs to it.
    squares = box_sizes(IntervalTable.from_row_bounds(rows, high, table.kv_len))
    offsets = np.concatenate([[0], np.cumsum(squares)]).tolist()
    wide = [(start, stop) for start, stop in pairwise(offsets) if stop > start + 1]
    if len(wide) == len(squares) > 1:
        yield regions.causal() | documents(squares)
    elif 0 < len(wide) <= MOST_PARTS:
        yield Or.of(regions.causal(), *(regions.rect(q=square, k=square) for square in wide))


def _under_causal(table: IntervalTable, describe: Describe) -> Iterator[Mask]:
    """Causal, and something simple that is seen once its mirror image is added."""
    if table.q_len != table.kv_len or table.count > SYMMETRIC_INTERVALS:
        return
    if (table.bounds()[1] > np.arange(table.q_len) + 1).any():
        return
    both = table | table.transpose()
    if both != table:
        yield regions.causal() & describe(both)


def _tree(table: IntervalTable) -> Iterator[Mask]:
    """A context and a tree of tokens behind it: every row is its parent's row and itself."""
    rows = seen_rows(table)
    if (
        len(rows) < table.q_len
        or table.q_len != table.kv_len
        or (table.bounds()[1] != np.arange(table.q_len) + 1).any()
    ):
        return
    last = table.row_ptr[1:] - 1
    alone = table.start[last] == np.arange(table.q_len)
    before = np.where(table.row_ptr[:-1] < last, table.stop[np.maximum(last - 1, 0)] - 1, -1)
    parents = np.where(alone, before, np.arange(table.q_len) - 1)
    branches = np.flatnonzero(parents != np.arange(table.q_len) - 1)
    if not len(branches):
        return
    behind = table.row_ptr[branches[0] : -1]
    context = int(np.where(table.start[behind] == 0, table.stop[behind], 0).min())
    nodes = (context, table.q_len)
    inner = tree(np.where(parents[context:] < context, -1, parents[context:] - context))
    if not context:
        yield inner
    else:
        past = regions.causal() & regions.rect(q=(0, table.q_len), k=(0, context))
        yield past | inner.at(q=nodes, k=nodes)


# Special tokens, panels of keys -----------------------------------------------------------------------------------


def _global_tokens(table: IntervalTable, describe: Describe) -> Iterator[Mask]:
    """Tokens at the beginning or the end that see all, are seen by all, or both; and what the others see."""
    low, high = table.bounds()
    whole = (high - low == table.kv_len) & (np.diff(table.row_ptr) == 1)
    rows, columns = _ranges(np.flatnonzero(whole)), _ranges(_seen_by_all(table))
    length = table.q_len
    for start, stop in {*columns[:1], *columns[-1:]}:
        at_edge = (start == 0) != (stop == table.kv_len)
        if at_edge and length == table.kv_len and (start, stop) in rows:
            rest = (stop, length) if start == 0 else (0, start)
            inner = describe(_part(table, rest, rest))
            tokens = regions.global_tokens([(start, stop)])
            yield tokens | inner
            yield tokens | inner.at(q=rest, k=rest)
        elif start == 0 and at_edge:
            yield regions.prefix(stop) | describe(table.clip(stop, table.kv_len))
    for start, stop in {*rows[:1], *rows[-1:]}:
        if (start == 0) != (stop == length):
            kept = np.ones(length, np.bool_)
            kept[start:stop] = False
            inner = describe(table.clip(0, np.where(kept, table.kv_len, 0)))
            yield regions.rect(q=(start, stop), k=(0, table.kv_len)) | inner


def _seen_by_all(table: IntervalTable) -> Int64s:
    """Keys that every query sees."""
    change = np.zeros(table.kv_len + 1, np.int64)
    np.add.at(change, table.start, 1)
    np.add.at(change, table.stop, -1)
    return np.flatnonzero(np.cumsum(change)[:-1] == table.q_len)


def _ranges(values: Int64s) -> list[tuple[int, int]]:
    """Consecutive numbers as ranges."""
    if not len(values):
        return []
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(values, breaks)]


def _panels(table: IntervalTable, describe: Describe) -> Iterator[Mask]:
    """Two panels of keys, one of them square: extra keys behind the tokens, or a context before them."""
    length, rows = table.q_len, (0, table.q_len)
    if length < table.kv_len:
        for cut in sorted({length, table.kv_len - length}):
            yield from _put_together(table, [(rows, (0, cut)), (rows, (cut, table.kv_len))], describe)


def _quarters(table: IntervalTable, describe: Describe) -> Iterator[Mask]:
    """Two sequences of equal length, one behind the other: noisy and clean."""
    if table.q_len == table.kv_len and table.q_len % 2 == 0:
        halves = (0, table.q_len // 2), (table.q_len // 2, table.q_len)
        yield from _put_together(table, [(q, k) for q in halves for k in halves], describe)


def _put_together(
    table: IntervalTable, places: list[tuple[tuple[int, int], tuple[int, int]]], describe: Describe
) -> Iterator[Mask]:
    """The descriptions of some boxes, each at its place."""
    parts = [(q, k, _part(table, q, k)) for q, k in places]
    placed = [describe(part).at(q=q, k=k) for q, k, part in parts if part.count]
    if placed:
        yield _union(placed)


# Everything else ---------------------------------------------------------------------------------------------------


def _equal_rows(table: IntervalTable) -> Iterator[Mask]:
    """Packed sequences whose tokens may be scattered: the first key that a query sees names its document."""
    if table.q_len == table.kv_len:
        yield documents(ids=np.where(np.diff(table.row_ptr) > 0, table.bounds()[0], -1))


def _tiles(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """A bool matrix of tiles, as wide as every boundary allows."""
    side = int(np.gcd.reduce(np.concatenate([[q_start], table.start, table.stop[table.stop < table.kv_len]])))
    if side == 1:
        return
    side = int(np.gcd.reduce(np.append(np.flatnonzero(_differs_from_above(table)) + q_start, side)))
    if side < 2 or q_start % side or -(-table.q_len // side) * -(-table.kv_len // side) > TILE_CELLS:
        return
    kept = table.take_rows(np.arange(0, table.q_len, side))
    cells = np.zeros((q_start // side + kept.q_len, -(-table.kv_len // side)), np.bool_)
    first, stop = (edge.astype(np.int64) for edge in (kept.start // side, -(-kept.stop // side)))
    row = np.repeat(kept.rows_per_interval() + q_start // side, stop - first)
    cells[row, ragged_range(first, stop - first)] = True
    yield tiles(cells, side)


def _differs_from_above(table: IntervalTable) -> np.ndarray:
    """For every row whether it shows something else than the row above; row 0 doesn't."""
    differs = np.zeros(table.q_len, np.bool_)
    if table.q_len > 1:
        above, below = table.take_rows(np.arange(table.q_len - 1)), table.take_rows(np.arange(1, table.q_len))
        differs[(above ^ below).rows_per_interval() + 1] = True
    return differs


def _nearly(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """A plain mask but for a few cells."""
    if table.count > 2 * table.q_len:
        return
    rows = seen_rows(table)
    bases: list[Mask] = [regions.full(), regions.causal()]
    if len(rows):
        left, right = (int(np.median(side[rows] - rows - q_start)) for side in table.bounds())
        if left <= 0 < right:
            bases.append(regions.window(-left, right - 1))
    for base in bases:
        shown = base.intervals(table.q_len, table.kv_len, q_start)
        extra, missing = table - shown, shown - table
        if 0 < extra.count + missing.count <= max(table.q_len // 8, 4):
            result: Mask = base
            if missing.count:
                result = result - _few_cells(missing, q_start)
            yield result | _few_cells(extra, q_start) if extra.count else result


def _few_cells(table: IntervalTable, q_start: int) -> Mask:
    """A small table as its strands, or explicit if there are too many of them."""
    parts = strands(table)
    if len(parts) > MOST_PARTS:
        return explicit(table, q_start)
    return _union([parts.region(number, q_start) for number in range(len(parts))])


def _strands(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """Rectangles, triangles and bands; the longest of them where there are too many, and the rest explicit."""
    parts = strands(table)
    chosen = np.arange(len(parts))
    if len(parts) > MOST_PARTS:
        long = np.flatnonzero(parts.rows >= SHORT_STRAND)
        chosen = np.sort(long[np.argsort(-parts.rows[long], kind="stable")[:MOST_PARTS]])
    if not len(chosen):
        return
    named = _union([parts.region(number, q_start) for number in chosen.tolist()])
    if len(chosen) == len(parts):
        yield named
    else:
        rest = table - named.intervals(table.q_len, table.kv_len, q_start)
        yield named | explicit(rest, q_start).named("the rest")


def _union(parts: list[Mask]) -> Mask:
    return parts[0] if len(parts) == 1 else Or.of(*parts)
