"""Is the work spread evenly, and would another token order make less of it?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmask_lab.compiler.cost import PROCESSORS, row_cost
from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.order import choose_order, permuted
from cmask_lab.compiler.rules.problem import Problem
from cmask_lab.compiler.tiles import tile_table

UNEVEN = 1.25
"""Work is badly balanced if it takes this many times as long as the same work spread evenly."""


def balance(problem: Problem) -> Iterator[Finding]:
    """One query tile may take longer than everything else together, spread over the multiprocessors."""
    heads = problem.options.heads
    cost = row_cost(problem.tiles.full_per_row, problem.tiles.partial_per_row)
    if len(cost) * heads < 2 * PROCESSORS:
        return  # too little work to fill the device, however it is spread
    even = cost.sum() * heads / PROCESSORS
    heaviest = int(np.argmax(cost))
    if cost[heaviest] > UNEVEN * max(even, float(np.median(cost))):
        first = heaviest * problem.tiles.q_tile
        rows = problem.queries[first : first + problem.tiles.q_tile]
        yield Finding(
            "balance",
            "warning",
            f"the heaviest query tile takes {cost[heaviest] / even:.1f} times as long as all work spread over "
            f"{PROCESSORS} multiprocessors ({heads} heads)",
            "put queries that see very much (global tokens) into a call of their own, or batch more heads",
            rows,
        )


def order(problem: Problem) -> Iterator[Finding]:
    """What ``order="auto"`` would choose, if anything."""
    table, tiles = problem.table, problem.tiles
    if problem.q_start or table.q_len != table.kv_len:
        return
    tile = (tiles.q_tile, tiles.kv_tile)
    permutation, name = choose_order([problem.mask], table.q_len, "auto", tile)
    if permutation is None:
        return
    better = tile_table(permuted(problem.mask, permutation).intervals(table.q_len), tile)
    now, then = (each.full_tiles + each.partial_tiles for each in (tiles, better))
    yield Finding(
        "order",
        "note",
        f"with the tokens as {name} a kernel visits {then:,} tiles instead of {now:,}, {then / now:.0%} of them",
        'compile with order="auto", or keep the tokens in that order through the model',
    )
