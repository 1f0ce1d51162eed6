"""FlexAttention's ``BlockMask`` → our mask: its lists *and* its predicate.

A pair is visible if its block is listed as full, or listed as partial and ``mask_mod`` says so. The predicate is asked
on partial blocks only, so time goes with their number, not with the square of the length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.interop.plane import assembled
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import from_table

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

CELLS_AT_ONCE = 1 << 21
"""Pairs that the predicate is asked for in one go; an int64 temporary of it takes 16 MB."""


def from_block_mask(block_mask: BlockMask, *, batch: int | None = None, heads: int | None = None) -> Mask:
    """The mask of a ``BlockMask``, as explicit intervals.

    Args:
        batch, heads: ask ``mask_mod`` for this many batch entries and heads; as many as the lists tell apart if not
            given. (Lists for one entry may go with a predicate that looks at it.)

    Raises:
        TypeError: no ``BlockMask``.
        ValueError: fewer entries or heads than the lists have.

    >>> from torch.nn.attention.flex_attention import create_block_mask
    >>> blocks = create_block_mask(lambda b, h, q, k: k <= q, 1, 1, 3, 3, "cpu", BLOCK_SIZE=2)
    >>> from_block_mask(blocks).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    if not hasattr(block_mask, "kv_num_blocks"):
        raise TypeError(f"from_block_mask: {type(block_mask).__name__} is not a BlockMask of FlexAttention")
    listed_batch, listed_heads = block_mask.kv_num_blocks.shape[:2]
    entries = _count(batch, listed_batch, "batch")
    per_entry = _count(heads, listed_heads, "heads")
    return assembled([[from_table(_table(block_mask, b, h)) for h in range(per_entry)] for b in range(entries)])


def _count(given: int | None, listed: int, what: str) -> int:
    if given is None:
        return listed
    count = integer(given, f"from_block_mask: {what}", least=1)
    if listed not in (1, count):
        raise ValueError(f"from_block_mask: {what} is {count}, and the lists are for {listed}")
    return count


def _table(block_mask: BlockMask, b: int, h: int) -> IntervalTable:
    q_len, kv_len = block_mask.seq_lengths
    rows, columns = block_mask.BLOCK_SIZE
    tables = []
    if block_mask.full_kv_num_blocks is not None and block_mask.full_kv_indices is not None:
        row, column = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, b, h)
        # A full block shows its columns to each of its rows, as far as they exist.
        size = np.minimum(rows, q_len - row * rows)
        query = ragged_range(row * rows, size)
        start = np.repeat(column * columns, size)
        tables.append(IntervalTable.from_intervals(query, start, start + columns, q_len, kv_len))
    row, column = _listed(block_mask.kv_num_blocks, block_mask.kv_indices, b, h)
    at_once = max(CELLS_AT_ONCE // (rows * columns), 1)
    for first in range(0, len(row), at_once):
        part = slice(first, first + at_once)
        cells = _asked(block_mask, b, h, row[part] * rows, column[part] * columns)
        tables.append(_pieces(cells, row[part] * rows, column[part] * columns, q_len, kv_len))
    result = IntervalTable.empty(q_len, kv_len)
    for table in tables:
        result = result | table
    return result


def _listed(count: torch.Tensor, indices: torch.Tensor, b: int, h: int) -> tuple[Int64s, Int64s]:
    """Query block and kv block of everything listed."""
    counts = count[min(b, len(count) - 1), min(h, count.shape[1] - 1)].cpu().numpy().astype(np.int64)
    blocks = indices[min(b, len(indices) - 1), min(h, indices.shape[1] - 1)].cpu().numpy().astype(np.int64)
    row = np.repeat(np.arange(len(counts)), counts)
    return row, blocks[row, ragged_range(np.zeros_like(counts), counts)]


def _asked(block_mask: BlockMask, b: int, h: int, first_q: Int64s, first_k: Int64s) -> np.ndarray:
    """bool ``(blocks, rows, columns)``: the predicate on some blocks, evaluated as FlexAttention evaluates it.

    The blocks stand where the heads are in ``create_mask``. Positions behind the end are asked as the last one.
    """
    import torch
    from torch.nn.attention.flex_attention import create_mask

    device = block_mask.kv_num_blocks.device
    q_len, kv_len = block_mask.seq_lengths
    q_base, k_base = (torch.from_numpy(first).to(device) for first in (first_q, first_k))

    def moved(entry: torch.Tensor, block: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        query, key = (q + q_base[block]).clamp(max=q_len - 1), (k + k_base[block]).clamp(max=kv_len - 1)
        return block_mask.mask_mod(entry + b, torch.zeros_like(block) + h, query, key)

    rows, columns = block_mask.BLOCK_SIZE
    return create_mask(moved, 1, len(first_q), rows, columns, str(device))[0].cpu().numpy()


def _pieces(cells: np.ndarray, first_q: Int64s, first_k: Int64s, q_len: int, kv_len: int) -> IntervalTable:
    """The rows of some blocks' cells as intervals of the whole plane; what hangs over its end is cut."""
    blocks, rows, columns = cells.shape
    inner = IntervalTable.from_dense(cells.reshape(blocks * rows, columns))
    row = inner.rows_per_interval()
    block = row // rows
    query = first_q[block] + row % rows
    start, stop = inner.start + first_k[block], inner.stop + first_k[block]
    there = query < q_len
    return IntervalTable.from_intervals(query[there], start[there], stop[there], q_len, kv_len)
