"""Pieces of code that the forward and the backward kernels share: loops over tiles, loads, pattern bits, scores."""

from __future__ import annotations

import math

import triton
import triton.language as tl

LOG2_E = tl.constexpr(math.log2(math.e))
LN_2 = tl.constexpr(math.log(2))

VARYING = [
    "q_len",
    "kv_len",
    "rows",
    "tile_rows",
    "heads",
    "kv_heads",
    "group",
    "shares",
    "batch_stride",
    "head_stride",
]
VARYING += ["q_batch", "q_head", "q_position"]
"""Integers that must not be compiled in: a length of 1, or a multiple of 16, is no reason for another kernel."""


@triton.jit
def load_rows(tensor, batch, head, first, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(ROWS, COLUMNS) of a (B, H, S, D) tensor descriptor from position ``first`` on; zeros outside the tensor."""
    return tensor.load([batch, head, first, 0]).reshape(ROWS, COLUMNS)


@triton.jit
def visible(words, row, first_word, COLUMNS: tl.constexpr, WORDS_A_ROW: tl.constexpr):
    """bool (rows, COLUMNS): cells of a pattern (row-major words) in its rows ``row``, from word ``first_word`` on.

    Each thread loads the few words of its own rows; only the compare is done for every cell. ``1 << column`` does not
    change from tile to tile, so what is left in the loop is one AND and one select a cell.
    """
    word = first_word + tl.arange(0, COLUMNS // 32)
    bits = tl.load(words + row[:, None] * WORDS_A_ROW + word[None, :])
    one = tl.full([1, 1, 32], 1, tl.int32) << tl.arange(0, 32)[None, None, :]
    return ((bits[:, :, None] & one) != 0).reshape(row.shape[0], COLUMNS)


@triton.jit
def capped(x, cap):
    """``cap * tanh(x / cap)``, through exp2 so that it also runs in the interpreter; saturates cleanly at ±cap."""
    return cap - 2 * cap / (1 + tl.exp2(x * (2 * LOG2_E / cap)))


@triton.jit
def sigmoid(x):
    """Logistic function."""
    return 1 / (1 + tl.exp2(-x * LOG2_E))


@triton.jit
def mask_number(mask_index, batch, head, batch_stride, head_stride):
    """Number of the distinct mask that a batch entry and query head use; a stride is 0 where all share one."""
    return tl.load(mask_index + batch * batch_stride + head * head_stride)


@triton.jit
def own_block(
    order, mask_index, batch_stride, head_stride, tile_rows, heads, group, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """What a program works on, of ``heads`` heads (for the mask each stands for ``group`` query heads).

    All blocks of a head come before those of the next one: its keys and values stay in the L2 cache.

    Returns:
        head of all batch entries, batch entry, head, mask, tile, and the block's first row within the tile.
    """
    blocks_a_head = tile_rows * (TILE // BLOCK)
    batch_head = tl.program_id(0) // blocks_a_head
    within = tl.program_id(0) % blocks_a_head
    batch = batch_head // heads
    head = batch_head % heads
    mask = mask_number(mask_index, batch, head * group, batch_stride, head_stride)
    tile = tl.load(order + mask * tile_rows + within // (TILE // BLOCK))
    return batch_head, batch, head, mask, tile, (within % (TILE // BLOCK)) * BLOCK


@triton.jit
def over_tiles(
    step: tl.constexpr,
    sums,
    fixed,
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    tile_row,
    row,  # of the tile row
    ROWS: tl.constexpr,  # a tile
    COLUMNS: tl.constexpr,  # a tile
    BLOCK: tl.constexpr,
):
    """The sums after a step for every BLOCK columns of the tiles in a tile row, those of full tiles first.

    A step is ``step(sums, first column, pattern, row, first word, MASKED, WORDS_A_ROW, *fixed)``. ``fixed`` is what it
    needs besides; write it into the call, since a variable would make numbers at run time of its constants.
    """
    pieces: tl.constexpr = COLUMNS // BLOCK
    for run in range(tl.load(run_ptr + tile_row), tl.load(run_ptr + tile_row + 1)):
        for first in range(tl.load(run_start + run) * COLUMNS, tl.load(run_stop + run) * COLUMNS, BLOCK):
            sums = step(sums, first, patterns, row, 0, False, COLUMNS // 32, *fixed)
    # One flat loop over pieces of partial tiles, so that the pipeline holds one piece a stage.
    for piece in range(tl.load(partial_ptr + tile_row) * pieces, tl.load(partial_ptr + tile_row + 1) * pieces):
        column = (piece % pieces) * BLOCK
        first = tl.load(partial_tile + piece // pieces) * COLUMNS + column
        words = patterns + tl.load(partial_pattern + piece // pieces).to(tl.int64) * (ROWS * (COLUMNS // 32))
        sums = step(sums, first, words, row, column // 32, True, COLUMNS // 32, *fixed)
    return sums


@triton.jit
def store_rows(tensor, values, position, inside, DIM: tl.constexpr):
    """Write ``(rows, padded DIM)`` values to rows ``position`` of a contiguous ``(…, DIM)`` tensor where inside."""
    column = tl.arange(0, values.shape[1])
    tl.store(
        tensor + position[:, None] * DIM + column[None, :],
        values.to(tensor.dtype.element_ty),
        mask=inside[:, None] & (column < DIM)[None, :],
    )
