"""The forward kernel: one program a block of queries and head, all masks from the descriptor.

A program walks the runs of full tiles without any mask work, then the partial tiles with their pattern bits. What it
reads of the mask comes through pointers, so no other mask ever compiles it anew.
"""

from __future__ import annotations

import triton
import triton.language as tl
from cmask_lab.kernels.portable.tiles import (
    LN_2,
    LOG2_E,
    VARYING,
    capped,
    load_rows,
    over_tiles,
    own_block,
    sigmoid,
    store_rows,
    visible,
)


@triton.jit
def attend(
    sums,
    first_key,
    words,
    row,
    first_word,
    MASKED: tl.constexpr,
    WORDS_A_ROW: tl.constexpr,
    q,
    k_tensor,
    v_tensor,
    batch,
    kv_head,
    scale,
    softcap,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One block of keys: the sum of values, and row_max and row_sum of the scores, all three with it included.

    Scores and row_max are in units of log2.
    """
    accumulator, row_max, row_sum = sums
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
    batch_head, batch, head, mask, tile, first_row = own_block(
        order, mask_index, batch_stride, head_stride, tile_rows, heads, 1, Q_TILE, BLOCK_M
    )
    first_query = tile * Q_TILE + first_row

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    if SINKS:
        # The sink is one more key with a value of zero: start as if it had been seen.
        row_max = tl.full([BLOCK_M], 0.0, tl.float32) + tl.load(sinks + head) * LOG2_E
        row_sum += 1
    accumulator = tl.zeros([BLOCK_M, VALUE], tl.float32)
    q = load_rows(q_tensor, batch, head, first_query, BLOCK_M, HEAD)

    accumulator, row_max, row_sum = over_tiles(
        attend, (accumulator, row_max, row_sum),
        (q, k_tensor, v_tensor, batch, head // group, scale, softcap, SILU, SOFTCAP, BLOCK_N, HEAD, VALUE, PRECISION),
        run_ptr, run_start, run_stop, partial_ptr, partial_tile,
        partial_pattern, patterns, mask * tile_rows + tile, first_row + tl.arange(0, BLOCK_M), Q_TILE, KV_TILE, BLOCK_N,
    )  # fmt: skip

    query = first_query + tl.arange(0, BLOCK_M)
    position = batch_head.to(tl.int64) * q_len + query
    if SILU:
        accumulator = accumulator / normalizer
    else:
        accumulator = accumulator / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
        tl.store(lse + position, (row_max + tl.log2(row_sum)) * LN_2, mask=query < q_len)
    store_rows(out, accumulator, position, query < q_len, VALUE_DIM)
