"""Target ``magi``, and the way in: MagiAttention's slices.

Format: ``magi_attention.functional.flex_flash_attn_func`` (``SandAI-org/MagiAttention``; the types are
``AttnMaskType``). A slice is a range of queries ``[q0, q1)``, a range of keys ``[k0, k1)`` and a type:

0. full: all of the rectangle;
1. causal, aligned at the bottom right: ``j - k1 <= i - q1``;
2. inverse causal, aligned at the top left: ``j - k0 >= i - q0``;
3. both.

The slices of a mask don't overlap. Any mask can be written so; here each slice takes as many rows as fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, one_mask_only
from cmask_lab.interop.torch_source import module
from cmask_lab.masks.arguments import integer, integers
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import from_table


def obstacle(plane: Plane) -> str | None:
    """Why MagiAttention can't take the mask; None if it can."""
    return one_mask_only(plane, "MagiAttention")


def source(plane: Plane) -> str:
    """A module with ``slices(device)`` → q_ranges, k_ranges, attn_type_map, and ``attention(q, k, v)``."""
    q_ranges, k_ranges, types = slices(plane.table)
    tables = [
        "# Slices: queries [start, stop), keys [start, stop), type 0 full, 1 causal, 2 inverse",
        "# causal, 3 both.",
        *int_table("Q_RANGES", q_ranges),
        *int_table("K_RANGES", k_ranges),
        *int_table("TYPES", types),
    ]
    return module(plane.title, ["import torch"], tables, [SLICES, ATTENTION])


def slices(table: IntervalTable) -> tuple[Int64s, Int64s, Int64s]:
    """Slices that cover exactly the cells of a table: ranges int64 ``(n, 2)`` twice, types ``(n,)``.

    Consecutive rows belong together while one of their intervals keeps its start or moves it by one key a row, and the
    same for its stop. Every interval has at most one such neighbour in the next row, so a table falls into chains;
    along a chain a slice goes on while the two steps stay the same.

    >>> q_ranges, k_ranges, types = slices(IntervalTable.from_row_bounds([0, 0, 1, 2], [1, 2, 3, 4], 4))
    >>> q_ranges.tolist(), k_ranges.tolist(), types.tolist()
    ([[0, 2], [2, 4]], [[0, 2], [1, 4]], [1, 3])
    """
    if not table.count:
        return np.empty((0, 2), np.int64), np.empty((0, 2), np.int64), np.empty(0, np.int64)
    follower, step = _followers(table)
    chain_order, chain_start = _chains(follower)
    labels = step[chain_order]
    first, last, kind = [], [], []
    ends = np.append(chain_start[1:], len(chain_order))
    # How far the same step goes on, by position along the chains.
    change = np.flatnonzero(np.append(labels[1:] != labels[:-1], True))
    run_end = change[np.searchsorted(change, np.arange(len(labels)))] + 1
    for begin, end in zip(chain_start.tolist(), ends.tolist(), strict=True):
        at = begin
        while at < end:
            stop = min(int(run_end[at]), end - 1)  # the step from the last interval of the chain leads nowhere
            first.append(at)
            last.append(stop)
            kind.append(int(labels[at]) if stop > at else 0)
            at = stop + 1
    top, bottom = chain_order[np.array(first, np.int64)], chain_order[np.array(last, np.int64)]
    row = table.rows_per_interval()
    q_ranges = np.stack([row[top], row[bottom] + 1], axis=1)
    k_ranges = np.stack([table.start[top], table.stop[bottom]], axis=1).astype(np.int64)
    by_place = np.lexsort((k_ranges[:, 0], q_ranges[:, 0]))
    return q_ranges[by_place], k_ranges[by_place], np.array(kind, np.int64)[by_place]


def _followers(table: IntervalTable) -> tuple[Int64s, Int64s]:
    """For every interval the one in the next row that goes on with it, or -1; and the type that the step makes."""
    stride = table.kv_len + 1
    start, stop = table.line[::2], table.line[1::2]
    follower, step = np.full(table.count, -1), np.zeros(table.count, np.int64)
    last_row = table.rows_per_interval() == table.q_len - 1
    for kind, (start_moves, stop_moves) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        place = np.searchsorted(start, start + stride + start_moves)
        found = np.minimum(place, table.count - 1)
        fits = (start[found] == start + stride + start_moves) & (stop[found] == stop + stride + stop_moves) & ~last_row
        follower[fits], step[fits] = found[fits], kind
    return follower, step


def _chains(follower: Int64s) -> tuple[Int64s, Int64s]:
    """The intervals chain after chain, and where each chain begins in that order."""
    count = len(follower)
    head, rank = np.arange(count), np.zeros(count, np.int64)
    before = np.full(count, -1)
    linked = np.flatnonzero(follower >= 0)
    before[follower[linked]] = linked
    jump = before.copy()
    # Every round doubles the distance: to the head of the chain, and how many intervals lie between.
    rank[jump >= 0] = 1
    while (moving := np.flatnonzero(jump >= 0)).size:
        target = jump[moving]
        head[moving] = head[target]
        new_rank, new_jump = rank[moving] + rank[target], jump[target]
        rank[moving], jump[moving] = new_rank, new_jump
    order = np.lexsort((rank, head))
    return order, np.flatnonzero(rank[order] == 0)


def from_magi(q_ranges: Any, k_ranges: Any, attn_type_map: Any, *, q_len: int, kv_len: int) -> Mask:
    """The mask of MagiAttention's slices; slices that overlap are joined.

    Args:
        q_ranges, k_ranges: integers ``(n, 2)``.
        attn_type_map: integers ``(n,)``, 0 to 3; None is all full.

    Raises:
        ValueError: shapes or types that MagiAttention doesn't have, or ranges outside the lengths.

    >>> from_magi([[0, 3]], [[0, 3]], [1], q_len=3, kv_len=3).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    q_len, kv_len = integer(q_len, "from_magi: q_len"), integer(kv_len, "from_magi: kv_len")
    queries, keys = (_ranges(side, name) for side, name in ((q_ranges, "q_ranges"), (k_ranges, "k_ranges")))
    types = np.zeros(len(queries), np.int64)
    if attn_type_map is not None:
        types = integers(attn_type_map, "from_magi", "type", need="types are 0 to 3", may_be_empty=True)
    if not len(queries) == len(keys) == len(types):
        raise ValueError(
            f"from_magi: {len(queries)} q_ranges, {len(keys)} k_ranges and {len(types)} types; one of each"
        )
    if (types > 3).any():
        raise ValueError(f"from_magi: type {types[types > 3][0]} is unknown; types are 0 to 3")
    for name, side, length in (("q_ranges", queries, q_len), ("k_ranges", keys, kv_len)):
        bad = np.flatnonzero((side[:, 0] < 0) | (side[:, 1] > length) | (side[:, 0] > side[:, 1]))
        if len(bad):
            raise ValueError(f"from_magi: {name}[{bad[0]}] is {side[bad[0]].tolist()}; it must lie in [0, {length}]")
    size = queries[:, 1] - queries[:, 0]
    row = ragged_range(queries[:, 0], size)
    q0, q1, k0, k1, kind = (np.repeat(each, size) for each in (*queries.T, *keys.T, types))
    start = np.where(kind >= 2, np.maximum(k0, k0 + row - q0), k0)
    stop = np.where(kind % 2 == 1, np.minimum(k1, k1 + row - q1 + 1), k1)
    # A causal slice with fewer keys than rows has rows that see nothing of it.
    return from_table(IntervalTable.from_intervals(row, start, np.maximum(stop, start), q_len, kv_len))


def _ranges(side: Any, name: str) -> np.ndarray:
    """int64 ``(n, 2)``."""
    array = np.asarray(side)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"from_magi: {name} has shape {array.shape} and dtype {array.dtype}; give integers (n, 2)")
    return array.astype(np.int64)


SLICES = '''\
def slices(device="cpu"):
    """q_ranges, k_ranges and attn_type_map, int32."""
    return Q_RANGES.to(device), K_RANGES.to(device), TYPES.to(device)
'''

ATTENTION = '''\
def attention(q, k, v, scale=None):
    """Attention of (S, H, D) tensors."""
    from magi_attention.functional import flex_flash_attn_func

    q_ranges, k_ranges, types = slices(q.device)
    out, *_ = flex_flash_attn_func(
        q=q,
        k=k,
        v=v,
        q_ranges=q_ranges,
        k_ranges=k_ranges,
        attn_type_map=types,
        softmax_scale=scale,
    )
    return out
'''
