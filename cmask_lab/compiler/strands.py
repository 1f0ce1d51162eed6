"""A table cut into strands: intervals of consecutive rows whose ends each stay or move by one key a row.

Rectangles, triangles and bands are single strands, and a mask that is drawn with a handful of them falls into a handful
of strands, whatever it was built from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.masks import regions
from cmask_lab.masks.mask import Mask


@dataclass(frozen=True)
class Strands:
    """The strands of a table, as arrays with one value each.

    Attributes:
        row, rows: first row, number of rows.
        start, stop: the interval ``[start, stop)`` in the first row.
        start_step, stop_step: what is added to them from row to row, 0 or 1.
    """

    row: Int64s
    rows: Int64s
    start: Int64s
    stop: Int64s
    start_step: Int64s
    stop_step: Int64s

    def __len__(self) -> int:
        return len(self.row)

    def region(self, number: int, q_start: int = 0) -> Mask:
        """One strand as a region; ``q_start`` is the position of row 0.

        >>> table = IntervalTable.from_row_bounds([2, 2, 2], [3, 4, 5], kv_len=8)
        >>> strands(table).region(0)
        cm.band(None, 3) & cm.rect(q=(0, 3), k=(2, 5))
        """
        rows = int(self.rows[number])
        first = int(self.row[number]) + q_start
        start, stop = int(self.start[number]), int(self.stop[number])
        moves = bool(self.start_step[number]), bool(self.stop_step[number])
        low, high = start - first, stop - first
        box = regions.rect(q=(first, first + rows), k=(start, stop + moves[1] * (rows - 1)))
        match moves:
            case False, False:
                return box
            case False, True:
                return (regions.causal() if high == 1 else regions.band(None, high)) & box
            case True, False:
                return (regions.anticausal() if low == 0 else regions.band(low, None)) & box
            case _:
                band = regions.window(-low, high - 1) if low <= 0 < high else regions.band(low, high)
                return band & regions.rect(q=(first, first + rows))


def strands(table: IntervalTable) -> Strands:
    """The strands of a table; every interval is in exactly one.

    >>> causal = IntervalTable.from_row_bounds([0] * 4, [1, 2, 3, 4], kv_len=4)
    >>> len(strands(causal)), strands(causal).rows.tolist()
    (1, [4])
    """
    row, start, stop = table.rows_per_interval(), table.start.astype(np.int64), table.stop.astype(np.int64)
    before, step = _predecessors(table, row, start, stop)
    linked = before >= 0
    # A strand goes on while its step is the same; its first link may have any.
    further = linked & linked[before]
    begins = ~linked | (further & (step != step[before]))
    head = np.where(begins, np.arange(len(row)), before)
    while True:  # pointers double their reach: as many rounds as the longest strand has binary digits
        farther = head[head]
        if np.array_equal(farther, head):
            break
        head = farther
    first, rows = np.unique(head, return_counts=True)
    kind = np.zeros(len(row), np.int64)
    kind[head[~begins]] = step[~begins]
    return Strands(row[first], rows, start[first], stop[first], kind[first] // 2, kind[first] % 2)


def _predecessors(table: IntervalTable, row: Int64s, start: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
    """For every interval the one in the row above that it goes on from, or -1; and the step, ``2·start + stop``.

    Intervals of a row don't touch, so of two starts one apart only one can be in it.
    """
    place = row * (table.kv_len + 1) + start
    before, step = np.full(len(row), -1, np.int64), np.zeros(len(row), np.int64)
    if not len(row):
        return before, step
    for start_step in (0, 1):
        wanted = place - (table.kv_len + 1) - start_step
        at = np.minimum(np.searchsorted(place, wanted), len(place) - 1)
        stop_step = stop - stop[at]
        found = (place[at] == wanted) & (row[at] == row - 1) & ((stop_step == 0) | (stop_step == 1))
        before[found], step[found] = at[found], (2 * start_step + stop_step)[found]
    return before, step
