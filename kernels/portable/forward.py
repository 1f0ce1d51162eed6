"""The forward kernel: one program a block of queries and head, all masks from the descriptor.

A program walks the runs of full tiles without any mask work, then the partial tiles with their pattern bits. What it
reads of the mask comes through pointers, so no other mask ever compiles it anew.
"""

from __future__ import annotations

import triton
import triton.language as tl
from cmask_lab.kernels.portable.tiles import LN_2, LOG2_E, capped, load_rows, mask_number, sigmoid, visible

VARYING = ["q_len", "tile_rows", "heads", "group", "batch_stride", "head_stride"]
"""Integers that must not be compiled in: a length of 1, or a multiple of 16, is no reason for another kernel."""


@triton.jit
def attend(
    q,
    accumulator,
    row_max,
    row_sum,
    k_tensor,
    v_tensor,
    batch,
    kv_head,
    first_key,
    words,
    row,
    first_word,
    scale,
    softcap,
    MASKED: tl.constexpr,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    WORDS_A_ROW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One block of keys: scores, weights, and the sum of values. Scores and row_max are in units of log2."""
    k = load_rows(k_tensor, batch, kv_head, first_key, BLOCK_N, HEAD)
    scores = tl.dot(q, k.T, input_precision=PRECISION)
    if SILU:
        scores = scores * scale
        if SOFTCAP:
            scores = capped(scores, softcap)
        weights = scores * sigmoid(scores)
        if MASKED:
            seen = visible(words, row, first_word, BLOCK_N, WORDS_A_ROW)
            weights = tl.where(seen, weights, 0.0)
    else:
        factor = scale * LOG2_E
        if SOFTCAP:
            scores = capped(scores * scale, softcap)
            factor = LOG2_E
        if MASKED:
            seen = visible(words, row, first_word, BLOCK_N, WORDS_A_ROW)
            scores = tl.where(seen, scores, float("-inf"))
        # The factor is positive, so it may be applied after the maximum and within one multiply-add.
        new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
        base = new_max
        if MASKED:
            # A row that has seen nothing yet: any finite number keeps -inf - base from becoming NaN.
            base = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(scores * factor - base[:, None])
        shrink = tl.exp2(row_max - base)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        accumulator = accumulator * shrink[:, None]
        row_max = new_max
    v = load_rows(v_tensor, batch, kv_head, first_key, BLOCK_N, VALUE)
    accumulator = tl.dot(weights.to(v.dtype), v, accumulator, input_precision=PRECISION)
    return accumulator, row_max, row_sum


@triton.jit(do_not_specialize=VARYING)
def attention_forward(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, Dv)
    out,  # (B, H, Sq, Dv), contiguous
    lse,  # (B, H, Sq), contiguous; not touched for SILU
    sinks,  # (H,), float32; not touched unless SINKS
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    order,  # (masks, tile_rows): query tiles of each mask, the one with most work first
    mask_index,
    batch_stride,
    head_stride,
    scale,  # positive
    softcap,
    normalizer,
    q_len,
    tile_rows,
    heads,
    group,  # query heads a kv head
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,  # D and Dv rounded up to a power of two
    VALUE: tl.constexpr,
    VALUE_DIM: tl.constexpr,  # Dv
    PRECISION: tl.constexpr,
):
    """out and lse of one block of queries of one head."""
    blocks_a_tile: tl.constexpr = Q_TILE // BLOCK_M
    words_a_row: tl.constexpr = KV_TILE // 32
    pieces: tl.constexpr = KV_TILE // BLOCK_N
    # All blocks of a head before those of the next one: its keys and values stay in the L2 cache.
    program = tl.program_id(0)
    blocks_a_head = tile_rows * blocks_a_tile
    batch_head = program // blocks_a_head
    within = program % blocks_a_head
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // group
    mask = mask_number(mask_index, batch, head, batch_stride, head_stride)
    tile = tl.load(order + mask * tile_rows + within // blocks_a_tile)
    row = (within % blocks_a_tile) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_query = tile * Q_TILE + (within % blocks_a_tile) * BLOCK_M
    tile_row = mask * tile_rows + tile

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    if SINKS:
        # The sink is one more key with a value of zero: start as if it had been seen.
        row_max = tl.full([BLOCK_M], 0.0, tl.float32) + tl.load(sinks + head) * LOG2_E
        row_sum += 1
    accumulator = tl.zeros([BLOCK_M, VALUE], tl.float32)
    q = load_rows(q_tensor, batch, head, first_query, BLOCK_M, HEAD)

    for run in range(tl.load(run_ptr + tile_row), tl.load(run_ptr + tile_row + 1)):
        for first_key in range(tl.load(run_start + run) * KV_TILE, tl.load(run_stop + run) * KV_TILE, BLOCK_N):
            accumulator, row_max, row_sum = attend(
                q, accumulator, row_max, row_sum, k_tensor, v_tensor, batch, kv_head, first_key, patterns, row, 0,
                scale, softcap, False, SILU, SOFTCAP, BLOCK_N, HEAD, VALUE, words_a_row, PRECISION,
            )  # fmt: skip
    # One flat loop over pieces of partial tiles, so that the pipeline holds one piece a stage.
    for piece in range(tl.load(partial_ptr + tile_row) * pieces, tl.load(partial_ptr + tile_row + 1) * pieces):
        column = (piece % pieces) * BLOCK_N
        first_key = tl.load(partial_tile + piece // pieces) * KV_TILE + column
        words = patterns + tl.load(partial_pattern + piece // pieces).to(tl.int64) * (Q_TILE * words_a_row)
        accumulator, row_max, row_sum = attend(
            q, accumulator, row_max, row_sum, k_tensor, v_tensor, batch, kv_head, first_key, words, row,
            column // 32, scale, softcap, True, SILU, SOFTCAP, BLOCK_N, HEAD, VALUE, words_a_row, PRECISION,
        )  # fmt: skip

    query = first_query + tl.arange(0, BLOCK_M)
    position = batch_head.to(tl.int64) * q_len + query
    if SILU:
        accumulator = accumulator / normalizer
    else:
        accumulator = accumulator / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
        tl.store(lse + position, (row_max + tl.log2(row_sum)) * LN_2, mask=query < q_len)
    column = tl.arange(0, VALUE)
    tl.store(
        out + position[:, None] * VALUE_DIM + column[None, :],
        accumulator.to(out.dtype.element_ty),
        mask=(query < q_len)[:, None] & (column < VALUE_DIM)[None, :],
    )
