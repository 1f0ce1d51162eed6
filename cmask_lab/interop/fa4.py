"""Target ``fa4``: FlashAttention-4 without FlexAttention in between.

Format: ``flash_attn.cute`` (``Dao-AILab/flash-attention``): ``flash_attn/cute/interface.py`` takes ``mask_mod``,
``aux_tensors`` and ``block_sparse_tensors``; ``flash_attn/cute/block_sparsity.py`` has ``BlockSparseTensorsTorch``.
Counts are int32 ``(B, H, q_blocks)``, indices ``(B, H, q_blocks, capacity)``, B and H may be 1; the capacity is as
small as the longest list allows. A ``mask_mod`` gets vectors of one element and is traced into the kernel, so it is
written here on scalars. Blocks are 128 by 128 on Hopper, 256 by 128 on Blackwell.

The tests check the lists, and the formula that ``mask_mod`` calls; they don't run the kernel.
"""

from __future__ import annotations

from cmask_lab.interop.formula import Formula, Place
from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, block_sides, no_blocks
from cmask_lab.interop.torch_source import RESERVED, indented, index_table, module, table_lines

BLOCK_SIZES = {"hopper": (128, 128), "blackwell": (256, 128)}
"""Queries and keys of a block by chip."""


def obstacle(plane: Plane) -> str | None:
    """Why FlashAttention-4 can't take the mask; None if it can."""
    return no_blocks(plane)


def source(plane: Plane, *, chip: str = "hopper", block_size: tuple[int, int] | int | None = None) -> str:
    """A module with ``sees`` (the formula), ``block_lists(device)`` and ``attention(q, k, v)``.

    Args:
        chip: "hopper" or "blackwell".
        block_size: ``(queries, keys)``, powers of two, instead of the chip's.

    Raises:
        ValueError: a chip or block size that is not known.
    """
    if chip not in BLOCK_SIZES:
        raise ValueError(f"export: chip {chip!r} is unknown; chips are 'hopper' and 'blackwell'")
    queries, keys = BLOCK_SIZES[chip] if block_size is None else block_sides(block_size)
    formula = Formula("where", (*RESERVED, "where", "tables", "aux_tensors"), margin=4, scalar=True)
    body = formula.any_of(plane.masks, plane.index, Place("q", "k", plane.q_start + plane.q_len, plane.kv_len))
    start = [f"q = q + {plane.q_start}"] if plane.q_start else []
    names = list(formula.tables)
    unpack = [f"({names[0]},) = tables" if len(names) == 1 else f"{', '.join(names)} = tables"] if names else []
    sees = f'def sees(b, h, q, k, tables, where):\n    """{SEES}"""\n{INSIDE}\n'
    sees += indented([*unpack, *start, *body]) + "\n"
    tiles = plane.tiles((queries, keys))
    tables = [line for name, table in formula.tables.items() for line in table_lines(name.upper(), table)]
    listed = ", ".join(name.upper() for name in names)
    tables += [
        *([""] if tables else []),
        f"TABLES = [{listed}]",
        f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}",
        f"BLOCK_SIZE = ({queries}, {keys})",
        f"Q_BLOCKS = {tiles.q_tiles}",
        f"MASKS = {len(plane.masks)}",
        "# Which mask a batch entry and head uses; mask n has the rows of blocks from",
        "# n * Q_BLOCKS on.",
        *index_table("MASK_INDEX", plane.index),
        "# Blocks visible in part: row of blocks and kv block of each.",
        *int_table("PARTIAL_ROW", tiles.partial_row),
        *int_table("PARTIAL_BLOCK", tiles.partial_tile),
        "# Blocks wholly visible: kv blocks [start, stop) of a row.",
        *int_table("RUN_ROW", tiles.run_row),
        *int_table("RUN_START", tiles.run_start),
        *int_table("RUN_STOP", tiles.run_stop),
    ]
    return module(plane.title, ["import torch"], tables, [sees, COMPACT, BLOCK_LISTS, ATTENTION])


SEES = "Whether query q sees key k; where(condition, a, b) selects."

INSIDE = '''
    def inside(x, n):
        """A position as an index of a table: n, its last entry, for all outside."""
        return where((x >= 0) & (x < n), x, n)
'''

COMPACT = '''\
def compact(row, block):
    """Blocks in order of their rows → counts and indices, no wider than they must be."""
    rows = MASKS * Q_BLOCKS
    count = torch.bincount(row, minlength=rows)
    place = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    blocks = torch.zeros(rows, max(int(count.max()), 1), dtype=torch.int32)
    blocks[row, place] = block
    shape = MASKS, Q_BLOCKS
    return count.int().reshape(shape), blocks.reshape(*shape, -1)
'''

BLOCK_LISTS = '''\
def block_lists(device="cpu"):
    """Counts and indices of partial blocks, then of full blocks, by batch and head."""
    size = RUN_STOP - RUN_START
    full_row = torch.repeat_interleave(RUN_ROW, size)
    full_block = torch.arange(len(full_row)) + torch.repeat_interleave(
        RUN_STOP - size.cumsum(0), size
    )
    lists = [
        *compact(PARTIAL_ROW, PARTIAL_BLOCK),
        *compact(full_row, full_block.int()),
    ]
    return [part[MASK_INDEX].to(device) for part in lists]
'''

ATTENTION = '''\
def make_mask_mod():
    """The formula as FlashAttention-4 traces it: vectors of one element in and out."""
    import cutlass
    from cutlass import cute
    from flash_attn.cute import utils

    def where(condition, a, b):
        chosen = cutlass.select_(condition, cutlass.Int32(a), cutlass.Int32(b))
        return cutlass.Int32(chosen)

    @cute.jit
    def mask_mod(batch, head, m_idx, n_idx, seqlen_info, aux_tensors):
        seen = sees(batch[0], head[0], m_idx[0], n_idx[0], aux_tensors, where)
        return utils.scalar_to_ssa(seen, cutlass.Boolean)

    return mask_mod


def attention(q, k, v, scale=None):
    """Attention of (B, S, H, D) tensors."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
    from flash_attn.cute.interface import _flash_attn_fwd

    partial_count, partial, full_count, full = block_lists(q.device)
    out, *_ = _flash_attn_fwd(
        q,
        k,
        v,
        softmax_scale=scale,
        mask_mod=make_mask_mod(),
        aux_tensors=[table.to(q.device) for table in TABLES] or None,
        block_sparse_tensors=BlockSparseTensorsTorch(
            mask_block_cnt=partial_count,
            mask_block_idx=partial,
            full_block_cnt=full_count,
            full_block_idx=full,
            block_size=BLOCK_SIZE,
        ),
    )
    return out
'''
