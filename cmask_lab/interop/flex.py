"""Target ``flex``: FlexAttention, as a readable ``mask_mod`` and a ``BlockMask`` made from our tiles.

Format: ``torch.nn.attention.flex_attention`` of PyTorch 2.11 and newer (``pytorch/pytorch``,
``torch/nn/attention/flex_attention.py``). ``BlockMask.from_kv_blocks`` takes for every query block the number of kv
blocks and their indices, once for those that the kernel passes through ``mask_mod`` and once for those that are wholly
visible. Nothing is ever evaluated over all query and key positions: the lists come from the compiler's tiles.

``kernel_options={"BACKEND": "FLASH"}`` runs FlashAttention-4; on Blackwell it wants blocks of 256 queries and 128 keys,
on Hopper 128 by 128 (``Dao-AILab/flash-attention``, ``flash_attn/cute``).
"""

from __future__ import annotations

from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, block_sides, no_blocks
from cmask_lab.interop.torch_source import MaskFunction, indented, index_table, module

BLOCK_SIZES = {
    ("hopper", "TRITON"): (128, 128),
    ("hopper", "FLASH"): (128, 128),
    ("blackwell", "TRITON"): (128, 128),
    ("blackwell", "FLASH"): (256, 128),
}
"""Queries and keys of a block by chip and backend."""


def obstacle(plane: Plane) -> str | None:
    """Why FlexAttention can't take the mask; None if it can."""
    return no_blocks(plane)


def source(
    plane: Plane,
    *,
    chip: str = "hopper",
    backend: str = "TRITON",
    block_size: tuple[int, int] | int | None = None,
) -> str:
    """A module with ``mask_mod``, ``make_block_mask(device)`` and ``attention(q, k, v)``.

    Args:
        chip: "hopper" or "blackwell".
        backend: "TRITON" or "FLASH".
        block_size: ``(queries, keys)``, powers of two, instead of the size that suits chip and backend.

    Raises:
        ValueError: a chip, backend or block size that is not known.
    """
    queries, keys = _block_size(chip, backend, block_size)
    mask = MaskFunction.of(plane)
    if mask.tables:  # then it becomes a function inside a function
        mask = MaskFunction.of(plane, margin=8)
    tiles = plane.tiles((queries, keys))
    constants = [
        f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}",
        f"BLOCK_SIZE = ({queries}, {keys})",
        f"Q_BLOCKS, KV_BLOCKS = {tiles.q_tiles}, {tiles.kv_tiles}",
        f'KERNEL_OPTIONS = {{"BACKEND": "{backend}"}}',
        "",
        "# Blocks visible in part: row of blocks and kv block of each.",
        *int_table("PARTIAL_ROW", tiles.partial_row),
        *int_table("PARTIAL_BLOCK", tiles.partial_tile),
        "# Blocks wholly visible: kv blocks [start, stop) of a row.",
        *int_table("RUN_ROW", tiles.run_row),
        *int_table("RUN_START", tiles.run_start),
        *int_table("RUN_STOP", tiles.run_stop),
    ]
    functions = [_mask_mod(mask), BLOCK_LISTS]
    body = MAKE_BLOCK_MASK.replace("MASK_MOD", "make_mask_mod(device)" if mask.tables else "mask_mod")
    if len(plane.masks) > 1:
        constants += [
            "# Which of the masks a batch entry and head uses; mask n has the rows of blocks from n * Q_BLOCKS on.",
            *index_table("MASK_INDEX", plane.index),
        ]
        body = body.replace("ROWS", f"{len(plane.masks)} * Q_BLOCKS").replace("SELECT", "part[MASK_INDEX]")
    else:
        body = body.replace("ROWS", "Q_BLOCKS").replace("SELECT", "part[None]")
    functions += [body, ATTENTION]
    return module(plane.title, IMPORTS, [*mask.tables, *([""] if mask.tables else []), *constants], functions)


def _block_size(chip: str, backend: str, block_size: tuple[int, int] | int | None) -> tuple[int, int]:
    if (chip, backend) not in BLOCK_SIZES:
        raise ValueError(
            f"export: chip {chip!r} with backend {backend!r} is unknown; "
            f"chips are 'hopper' and 'blackwell', backends 'TRITON' and 'FLASH'"
        )
    if block_size is None:
        return BLOCK_SIZES[chip, backend]
    return block_sides(block_size)


def _mask_mod(mask: MaskFunction) -> str:
    if mask.tables:
        return mask.factory()
    return f'def mask_mod(b, h, q, k):\n    """Whether query q sees key k."""\n{indented(mask.body)}\n'


IMPORTS = [
    "import functools",
    "",
    "import torch",
    "from torch.nn.attention.flex_attention import BlockMask, flex_attention",
]

BLOCK_LISTS = '''\
def block_lists(row, block, rows):
    """Blocks in order of their rows → how many a row has, and which, filled up with zeros."""
    count = torch.bincount(row, minlength=rows)
    place = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    blocks = torch.zeros(rows, KV_BLOCKS, dtype=torch.int32)
    blocks[row, place] = block
    shape = -1, Q_BLOCKS
    return count.int().reshape(shape), blocks.reshape(*shape, KV_BLOCKS)
'''

MAKE_BLOCK_MASK = '''\
def make_block_mask(device):
    """The BlockMask, made from lists of blocks; no mask is ever evaluated for it."""
    size = RUN_STOP - RUN_START
    full_row = torch.repeat_interleave(RUN_ROW, size)
    full_block = torch.arange(len(full_row)) + torch.repeat_interleave(
        RUN_STOP - size.cumsum(0), size
    )
    lists = [
        *block_lists(PARTIAL_ROW, PARTIAL_BLOCK, ROWS),
        *block_lists(full_row, full_block.int(), ROWS),
    ]
    return BlockMask.from_kv_blocks(
        *(SELECT.to(device) for part in lists),
        BLOCK_SIZE=BLOCK_SIZE,
        mask_mod=MASK_MOD,
        seq_lengths=(Q_LEN, KV_LEN),
    )
'''

ATTENTION = '''\
@functools.cache
def compiled_flex_attention():
    """FlexAttention as one kernel; made on first use."""
    return torch.compile(flex_attention)


def attention(q, k, v, block_mask, scale=None):
    """Attention of (B, H, S, D) tensors; block_mask from make_block_mask(q.device)."""
    if (q.shape[2], k.shape[2]) != (Q_LEN, KV_LEN):
        raise ValueError(f"the mask is for {Q_LEN} queries and {KV_LEN} keys")
    run, options = flex_attention, None
    if q.is_cuda:
        run, options = compiled_flex_attention(), KERNEL_OPTIONS
    return run(
        q,
        k,
        v,
        block_mask=block_mask,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
        kernel_options=options,
    )
'''
