"""Guesses at what a table is: masks that explain a whole table, to be compared with it.

A guess reads a few numbers off the table, wherever the mask in question would show them, and need not be right: whoever
asks lowers the mask and compares. So a guess may look at one row where a proof would look at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.masks import regions
from cmask_lab.masks.grids import Grid, grid
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import documents

MOST_GUESSES = 6
"""Widths that are tried for a grid."""


def guesses(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """Masks that a table may be, simple ones first.

    >>> table = IntervalTable.from_row_bounds([0, 0, 1], [1, 2, 3], kv_len=3)
    >>> next(guesses(table, 0))
    cm.window(1, 0)
    """
    if not table.count:
        yield regions.empty()
        return
    yield from _one_interval(table, q_start)
    yield from _sinks(table, q_start)
    yield from _dilated(table, q_start)
    if q_start == 0:
        yield from _shared_prompt(table)


def seen_rows(table: IntervalTable) -> Int64s:
    """Numbers of the rows that see something."""
    return np.flatnonzero(np.diff(table.row_ptr))


def _one_interval(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """Causal, windows, bands, a prefix: rows of one interval whose ends stand still or move with the query."""
    rows = seen_rows(table)
    if table.count != len(rows):
        return
    low, high = (side[rows] for side in table.bounds())
    query = rows + q_start
    lows = _end(low, query, 0)
    highs = _end(high, query, table.kv_len)
    whole = None if len(rows) == table.q_len else (int(rows[0]) + q_start, int(rows[-1]) + 1 + q_start)
    for left in lows:
        for right in highs:
            yield _between(left, right)
            if whole is not None:
                yield _between_in_rows(left, right, whole)
    least = int(high.min())
    rising = high > least
    if rising.any() and not low.any():
        reach = int((high - query)[rising][0])
        moving = regions.causal() if reach == 1 else regions.band(None, reach)
        yield regions.prefix(least) | moving


def _end(end: Int64s, query: Int64s, border: int) -> list[tuple[str, int]]:
    """What an end of the rows' intervals may be: the plane's border, a fixed key, a distance from the query."""
    options: list[tuple[str, int]] = []
    if (end == border).all():
        options.append(("border", border))
    inner = end != border
    if inner.any():
        apart = (end - query)[inner]
        if (apart == apart[0]).all():
            options.append(("moving", int(apart[0])))
    if (end == end[0]).all():
        options.append(("fixed", int(end[0])))
    return options


def _between(left: tuple[str, int], right: tuple[str, int]) -> Mask:
    """The mask whose rows reach from one end to the other."""
    match left, right:
        case ("border", _), ("border", _):
            return regions.full()
        case ("border", _), ("fixed", stop):
            return regions.prefix(stop)
        case ("fixed", start), ("border", _):
            return regions.suffix(start)
        case ("fixed", start), ("fixed", stop):
            return regions.rect(k=(start, stop))
        case ("border", _), ("moving", high):
            return regions.causal() if high == 1 else regions.band(None, high)
        case ("moving", low), ("border", _):
            return regions.anticausal() if low == 0 else regions.band(low, None)
        case ("moving", low), ("moving", high):
            return regions.window(-low, high - 1) if low <= 0 < high else regions.band(min(low, high), high)
        case ("fixed", start), ("moving", high):
            return _between(("border", 0), ("moving", high)) & regions.suffix(start)
        case ("moving", low), (_, stop):
            return _between(("moving", low), ("border", 0)) & regions.prefix(stop)
    raise AssertionError(f"ends {left} and {right}")


def _between_in_rows(left: tuple[str, int], right: tuple[str, int], rows: tuple[int, int]) -> Mask:
    """The same for the given queries alone."""
    if "moving" in (left[0], right[0]):
        return _between(left, right) & regions.rect(q=rows)
    return regions.rect(q=rows, k=(left[1], right[1]))


def _sinks(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """The first keys and a window: rows of two intervals, the second moving with the query."""
    rows = seen_rows(table)
    two = np.flatnonzero(np.diff(table.row_ptr)[rows] == 2)
    if not len(two):
        return
    row = rows[two[0]]
    (_, sinks), (start, stop) = table.row(int(row)).tolist()
    query = int(row) + q_start
    left, right = query - start, stop - query - 1
    if left >= 0 and right >= 0:
        moving = regions.window(left, right)
        yield regions.sink(sinks) | moving
        yield regions.prefix(sinks) | moving


def _dilated(table: IntervalTable, q_start: int) -> Iterator[Mask]:
    """Single keys at equal distances: a dilated window."""
    per_row = np.diff(table.row_ptr)
    row = int(per_row.argmax())
    keys = table.row(row)
    if len(keys) < 2 or (keys[:, 1] - keys[:, 0] != 1).any():
        return
    steps = np.diff(keys[:, 0])
    step, query = int(steps[0]), row + q_start
    if (steps != step).any():
        return
    phase = (query - int(keys[0, 0])) % step
    left, right = query - int(keys[0, 0]), int(keys[-1, 0]) - query
    every = regions.strided(step, phase)
    yield every
    if right <= 0:
        yield every & regions.causal()
    if left >= 0 and right >= -step:
        yield every & regions.window(left, max(right, 0))


def _shared_prompt(table: IntervalTable) -> Iterator[Mask]:
    """A prompt and answers behind it; the answers start where a second interval does."""
    rows = seen_rows(table)
    last = table.row_ptr[rows + 1] - 1
    second = last > table.row_ptr[rows]
    if not second.any():
        return
    prompt = int(table.stop[table.row_ptr[rows[second][0]]])
    starts = np.unique(table.start[last[second]]).tolist()
    if starts[0] <= prompt:
        return
    lengths = np.diff([0, prompt, *starts, table.kv_len]).tolist()
    seen = regions.prefix(prompt) | documents(lengths)
    yield regions.causal() & seen
    yield seen


def grid_guesses(table: IntervalTable) -> Iterator[Mask]:
    """A disk, a box, a neighbourhood or axes on a grid, read off the first, the middle and the last row."""
    if not table.q_len or table.q_len != table.kv_len or not len(table.row(0)) or table.row(0)[0, 0]:
        return
    for shape in _shapes(table):
        yield from _on_grid(table, grid(*shape))


def _shapes(table: IntervalTable) -> Iterator[tuple[int, ...]]:
    """Shapes that the tokens may have: row 0 shows the rows' length, and in three dimensions the frames' length.

    Its intervals begin at the starts of rows of the grid, one row length apart; a longer way leads to the next frame.
    """
    tokens = table.q_len
    yield 1, tokens
    starts = table.row(0)[:, 0].tolist()
    middle = table.row(tokens // 2)[:, 0].tolist()
    steps = [after - before for row in (starts, middle) for before, after in pairwise(row)]
    widths = [width for width in dict.fromkeys(steps) if tokens % width == 0][:MOST_GUESSES]
    # A reach as long as a row joins the intervals of all rows: the width is then any divisor.
    divisors = [] if steps else [width for width in range(2, tokens) if tokens % width == 0]
    for width in widths or divisors[: 4 * MOST_GUESSES]:
        yield tokens // width, width
    frames = [at for width in widths[:1] for before, at in pairwise(starts) if at - before != width]
    for frame in [frame for frame in frames + steps if tokens % frame == 0][:MOST_GUESSES]:
        for width in [width for width in widths if frame > width and frame % width == 0][:2]:
            yield tokens // frame, frame // width, width
        yield tokens // frame, 1, frame


def _on_grid(table: IntervalTable, layout: Grid) -> Iterator[Mask]:
    """The kinds of neighbours with the numbers that row 0 shows."""
    shape = layout.shape
    spans = _spans(table.row(0), shape)
    if spans is None:
        return
    radii = tuple(span - 1 for span in spans)
    yield layout.disk(max(spans))
    yield layout.box(*radii)
    if all(span <= side for span, side in zip(spans, shape, strict=True)):
        yield layout.neighborhood(spans)
    yield layout.axial()
    # A causal axis shows row 0 one key only: look at the last row.
    last = _spans(prod(shape) - table.row(table.q_len - 1)[::-1, ::-1], shape)
    if last is not None:
        causal = [span == 1 and end > 1 for span, end in zip(spans, last, strict=True)]
        sizes = [max(pair) for pair in zip(spans, last, strict=True)]
        if any(causal) and all(size <= side for size, side in zip(sizes, shape, strict=True)):
            yield layout.neighborhood(sizes, causal=causal)


def _spans(corner: np.ndarray, shape: tuple[int, ...]) -> list[int] | None:
    """How far a row of intervals reaches along every axis from the corner; None if it doesn't start there."""
    if not len(corner) or corner[0, 0]:
        return None
    starts = set()
    for start, stop in corner.tolist():
        starts.update(range(start, stop, shape[-1]))
    spans = []
    for axis in range(len(shape) - 1):
        inner = prod(shape[axis + 1 :])
        span = 1
        while span < shape[axis] and span * inner in starts:
            span += 1
        spans.append(span)
    return [*spans, min(int(corner[0, 1]), shape[-1])]
