"""What single rows see: nothing, nothing at first, the future."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.rules.problem import Problem, count


def empty(problem: Problem) -> Iterator[Finding]:
    """Rows that see nothing at all."""
    rows = problem.queries[np.diff(problem.table.row_ptr) == 0]
    if len(rows):
        one = len(rows) == 1
        yield Finding(
            "empty-rows",
            "warning",
            f"{count(len(rows))} {'sees' if one else 'see'} nothing: "
            f"{'its output is' if one else 'their outputs are'} 0, {'its' if one else 'their'} log-sum-exp -inf",
            f"cut {'it' if one else 'them'} off, or let every query see itself: mask | cm.window(0)",
            rows,
        )


def first_tiles(problem: Problem) -> Iterator[Finding]:
    """Rows whose first scheduled tile holds nothing for them: a running maximum of -inf meets exp(-inf − -inf)."""
    tiles, table = problem.tiles, problem.table
    first = np.full(tiles.q_tiles, tiles.kv_tiles, np.int64)
    np.minimum.at(first, tiles.run_row, tiles.run_start)
    np.minimum.at(first, tiles.partial_row, tiles.partial_tile)
    own = table.bounds()[0] // tiles.kv_tile
    seen = np.diff(table.row_ptr) > 0
    late = seen & (own > first[np.arange(table.q_len) // tiles.q_tile])
    if late.any():
        yield Finding(
            "first-tile",
            "note",
            f"{count(int(late.sum()))} {'sees' if late.sum() == 1 else 'see'} nothing in the first tile that "
            f"{'its' if late.sum() == 1 else 'their'} query tile visits",
            "nothing with cmask_lab; in a kernel of your own guard exp(−∞ − (−∞)), which is NaN",
            problem.queries[late],
        )


def future(problem: Problem) -> Iterator[Finding]:
    """Rows of a causal model that see keys after their own."""
    if not problem.options.causal:
        return
    ahead = problem.table.bounds()[1] > problem.queries + 1
    if ahead.any():
        row = int(np.flatnonzero(ahead)[0])
        yield Finding(
            "future",
            "error",
            f"{count(int(ahead.sum()))} of a causal model {'sees' if ahead.sum() == 1 else 'see'} the future: query "
            f"{problem.q_start + row} sees key {int(problem.table.bounds()[1][row]) - 1}",
            "use mask & cm.causal(); for a query offset pass q_start",
            problem.queries[ahead],
        )
