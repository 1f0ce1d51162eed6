"""Target ``flashinfer``: a block-sparse matrix with a mask for every block, and the packed custom mask.

Formats: ``flashinfer.BlockSparseAttentionWrapper.plan`` (FlashInfer documentation, "flashinfer.sparse"; block sparse
rows as SciPy's ``bsr_matrix``): ``indptr`` int32 ``(M / R + 1,)``, ``indices`` int32 ``(nnz,)``, ``mask`` bool
``(nnz, R, C)`` for blocks of R queries and C keys that divide the lengths. The prefill wrappers take
``packed_custom_mask``: all cells of a request row by row, eight to a byte, the first in the lowest bit.
"""

from __future__ import annotations

import numpy as np

from cmask_lab.compiler.intervals import Bools, Int64s
from cmask_lab.compiler.tiles import tile_table
from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, block_sides, one_mask_only
from cmask_lab.interop.torch_source import module

LARGEST_BLOCK = 64


def obstacle(plane: Plane) -> str | None:
    """Why FlashInfer can't take the mask; None if it can."""
    return one_mask_only(plane, "FlashInfer's block-sparse wrapper")


def source(plane: Plane, *, block_size: tuple[int, int] | None = None) -> str:
    """A module with ``block_sparse(device)``, ``packed_custom_mask(device)`` and ``attention(q, k, v)``.

    Args:
        block_size: queries and keys of a block, powers of two that divide the lengths; the largest up to 64 if not
            given.

    Raises:
        ValueError: a block size that does not divide the lengths.
    """
    rows, columns = _block_size(plane, block_size)
    row, column, number, cells = _blocks(plane, rows, columns)
    indptr = np.searchsorted(row, np.arange(plane.q_len // rows + 1))
    patterns = np.packbits(cells.reshape(len(cells), -1), axis=1, bitorder="little")
    tables = [
        f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}",
        f"R, C = {rows}, {columns}",
        *int_table("INDPTR", indptr),
        *int_table("INDICES", column),
        "# Which of the patterns a block has; eight cells of a pattern in a number.",
        *int_table("PATTERN", number),
        *int_table("PATTERNS", patterns),
    ]
    functions = [BLOCK_SPARSE, PACKED, ATTENTION]
    return module(plane.title, ["import torch"], tables, functions)


def _block_size(plane: Plane, block_size: tuple[int, int] | None) -> tuple[int, int]:
    lengths = (plane.q_len, plane.kv_len)
    if block_size is None:
        # The lowest set bit of a length is the largest power of two that divides it.
        queries, keys = (min(length & -length, LARGEST_BLOCK) or LARGEST_BLOCK for length in lengths)
        return queries, keys
    sides = block_sides(block_size)
    for side, length, name in zip(sides, lengths, ("queries", "keys"), strict=True):
        if length % side:
            raise ValueError(
                f"export: block_size is {block_size}; flashinfer's blocks divide the lengths, "
                f"and {side} does not divide {length} {name}"
            )
    return sides


def _blocks(plane: Plane, rows: int, columns: int) -> tuple[Int64s, Int64s, Int64s, Bools]:
    """Row, column and pattern number of every block that is not empty, and the different patterns."""
    tiles = tile_table(plane.table, (rows, columns))
    size = tiles.run_stop - tiles.run_start
    full_column = np.arange(size.sum()) + np.repeat(tiles.run_start - (np.cumsum(size) - size), size)
    row = np.concatenate([tiles.partial_row, np.repeat(tiles.run_row, size)])
    column = np.concatenate([tiles.partial_tile, full_column])
    # Pattern 0 is the full block; partial ones are numbered as they come.
    known = {np.ones((rows, columns), np.bool_).tobytes(): 0}
    number = np.zeros(len(row), np.int64)
    edges = np.searchsorted(tiles.partial_row, np.arange(tiles.q_tiles + 1))
    for block_row in range(tiles.q_tiles):
        mine = range(edges[block_row], edges[block_row + 1])
        if not mine:
            continue
        dense = plane.table.take_rows(np.arange(block_row * rows, (block_row + 1) * rows)).to_dense()
        for n in mine:
            first = int(tiles.partial_tile[n]) * columns
            cells = np.ascontiguousarray(dense[:, first : first + columns])
            number[n] = known.setdefault(cells.tobytes(), len(known))
    patterns = np.frombuffer(b"".join(known), np.bool_).reshape(-1, rows, columns)
    in_order = np.lexsort((column, row))
    return row[in_order], column[in_order], number[in_order], patterns


BLOCK_SPARSE = '''\
def block_sparse(device="cpu"):
    """indptr, indices and the mask of every block, bool (nnz, R, C)."""
    bits = (PATTERNS.reshape(-1, 1) >> torch.arange(8)) & 1
    cells = bits.bool().reshape(len(PATTERNS), -1)[:, : R * C].reshape(-1, R, C)
    mask = cells[PATTERN.long()]
    return INDPTR.to(device), INDICES.to(device), mask.to(device)
'''

PACKED = '''\
def packed_custom_mask(device="cpu"):
    """uint8: all cells row by row, eight to a byte, the first in the lowest bit."""
    indptr, indices, mask = block_sparse()
    row = torch.repeat_interleave(torch.arange(Q_LEN // R), indptr.diff())
    dense = torch.zeros(Q_LEN // R, KV_LEN // C, R, C, dtype=torch.bool)
    dense[row, indices.long()] = mask
    cells = dense.permute(0, 2, 1, 3).reshape(-1)
    padded = torch.zeros(-(-len(cells) // 8) * 8, dtype=torch.uint8)
    padded[: len(cells)] = cells
    weights = 1 << torch.arange(8)
    return (padded.reshape(-1, 8) * weights).sum(-1).to(device, torch.uint8)
'''

ATTENTION = '''\
def attention(q, k, v, scale=None):
    """Attention of (S, H, D) tensors."""
    import flashinfer

    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BlockSparseAttentionWrapper(workspace)
    indptr, indices, mask = block_sparse(q.device)
    wrapper.plan(
        indptr,
        indices,
        Q_LEN,
        KV_LEN,
        R,
        C,
        q.shape[1],
        k.shape[1],
        q.shape[2],
        mask=mask,
        sm_scale=scale,
        q_data_type=q.dtype,
    )
    return wrapper.run(q, k, v)
'''
