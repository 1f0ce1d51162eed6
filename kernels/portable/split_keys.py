"""The forward kernels for few queries and many keys: each program takes a share of the keys, a second kernel merges.

The tiles of a query tile are numbered in the order of the descriptor, full ones first, and cut into steps of BLOCK_N
keys; a share is a contiguous range of steps. Its program writes the output of these keys alone and their log-sum-exp,
or for SiLU the plain sum. A share that sees nothing writes 0 and -inf. Shares are merged in their order, so every run
gives the same bits. How many there are is said in :mod:`cmask_lab.kernels.portable.shares`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from cmask_lab.kernels.mask_lists import share_lists
from cmask_lab.kernels.portable.forward import attend
from cmask_lab.kernels.portable.launch import in_pieces, kernel_constants, padded
from cmask_lab.kernels.portable.shares import Split
from cmask_lab.kernels.portable.tiles import LN_2, LOG2_E, VARYING, mask_number, store_rows
from cmask_lab.kernels.registry import Options

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask

MERGED_AT_ONCE = 16
"""Shares that the merging kernel holds in registers together."""


@triton.jit
def _run_of(run_first, first_run, last_run, tile):
    """The run, of those from first_run to last_run, with the full tile of that number; the runs are not empty."""
    while last_run - first_run > 1:
        middle = (first_run + last_run) // 2
        before = tl.load(run_first + middle) <= tile
        first_run = tl.where(before, middle, first_run)
        last_run = tl.where(before, last_run, middle)
    return first_run


@triton.jit
def _over_share(
    step: tl.constexpr,
    sums,
    fixed,
    share,
    shares,
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    run_first,
    tile_row,
    row,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As over_tiles, for one share of the steps."""
    pieces: tl.constexpr = COLUMNS // BLOCK
    first_run = tl.load(run_ptr + tile_row)
    last_run = tl.load(run_ptr + tile_row + 1)
    first_partial = tl.load(partial_ptr + tile_row)
    tiles_before = tl.load(run_first + first_run)
    full = (tl.load(run_first + last_run) - tiles_before) * pieces
    steps = full + (tl.load(partial_ptr + tile_row + 1) - first_partial) * pieces
    begin = (steps.to(tl.int64) * share // shares).to(tl.int32)
    end = (steps.to(tl.int64) * (share + 1) // shares).to(tl.int32)
    full_end = tl.minimum(end, full)
    if begin < full_end:
        last_run = _run_of(run_first, first_run, last_run, tiles_before + (full_end - 1) // pieces) + 1
        first_run = _run_of(run_first, first_run, last_run, tiles_before + begin // pieces)
        for run in range(first_run, last_run):
            run_step = (tl.load(run_first + run) - tiles_before) * pieces
            run_end = (tl.load(run_first + run + 1) - tiles_before) * pieces
            run_column = tl.load(run_start + run) * COLUMNS
            for number in range(tl.maximum(begin, run_step), tl.minimum(full_end, run_end)):
                first = run_column + (number - run_step) * BLOCK
                sums = step(sums, first, patterns, row, 0, False, COLUMNS // 32, *fixed)
    first_piece = first_partial * pieces - full
    for piece in range(first_piece + tl.maximum(begin, full), first_piece + tl.maximum(end, full)):
        column = (piece % pieces) * BLOCK
        first = tl.load(partial_tile + piece // pieces) * COLUMNS + column
        words = patterns + tl.load(partial_pattern + piece // pieces).to(tl.int64) * (ROWS * (COLUMNS // 32))
        sums = step(sums, first, words, row, column // 32, True, COLUMNS // 32, *fixed)
    return sums


@triton.jit(do_not_specialize=VARYING)
def attention_share(
    q,  # (B, H, Sq, D), with its strides
    q_batch,
    q_head,
    q_position,
    q_column,
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, Dv)
    share_out,  # written, (B, H, Sq, shares, Dv), float32
    share_lse2,  # written, (B, H, Sq, shares), in units of log2; not touched for SILU
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    run_first,  # full tiles in the runs before each one
    mask_index,
    batch_stride,
    head_stride,
    scale,  # positive
    softcap,
    q_len,
    tile_rows,
    kv_heads,
    group,  # query heads a kv head
    shares,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,  # rows: QUERIES of each of BLOCK_M // QUERIES heads
    QUERIES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,  # D and Dv rounded up to a power of two
    VALUE: tl.constexpr,
    HEAD_DIM: tl.constexpr,  # D and Dv
    VALUE_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What one share of the keys gives for a block of queries of some heads of one kv head."""
    packed: tl.constexpr = BLOCK_M // QUERIES
    program = tl.program_id(0)
    share = program % shares
    blocks = tl.cdiv(q_len, QUERIES)
    packs = tl.cdiv(group, packed)
    first_query = (program // shares) % blocks * QUERIES
    batch_kv_head = program // shares // blocks // packs
    batch = batch_kv_head // kv_heads
    kv_head = batch_kv_head % kv_heads
    first_head = kv_head * group + (program // shares // blocks) % packs * packed
    # All heads of a program have one mask.
    mask = mask_number(mask_index, batch, first_head, batch_stride, head_stride)

    row = tl.arange(0, BLOCK_M)
    head = first_head + row // QUERIES
    query = first_query + row % QUERIES
    inside = (query < q_len) & (head < (kv_head + 1) * group)
    column = tl.arange(0, HEAD)
    place = batch.to(tl.int64) * q_batch + head.to(tl.int64) * q_head + query.to(tl.int64) * q_position
    q = tl.load(
        q + place[:, None] + column[None, :] * q_column, mask=inside[:, None] & (column < HEAD_DIM)[None, :], other=0
    )

    sums = (
        tl.zeros([BLOCK_M, VALUE], tl.float32),
        tl.full([BLOCK_M], float("-inf"), tl.float32),
        tl.zeros([BLOCK_M], tl.float32),
    )
    accumulator, row_max, row_sum = _over_share(
        attend, sums,
        (q, k_tensor, v_tensor, batch, kv_head, scale, softcap, SILU, SOFTCAP, BLOCK_N, HEAD, VALUE, PRECISION),
        share, shares, run_ptr, run_start, run_stop, partial_ptr, partial_tile, partial_pattern, patterns, run_first,
        mask * tile_rows + first_query // Q_TILE, query % Q_TILE, Q_TILE, KV_TILE, BLOCK_N,
    )  # fmt: skip

    position = ((batch * kv_heads * group + head).to(tl.int64) * q_len + query) * shares + share
    if not SILU:
        accumulator = accumulator / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
        tl.store(share_lse2 + position, row_max + tl.log2(row_sum), mask=inside)
    store_rows(share_out, accumulator, position, inside, VALUE_DIM)


@triton.jit(do_not_specialize=VARYING)
def merge_shares(
    share_out,  # (B, H, Sq, shares, Dv)
    share_lse2,  # (B, H, Sq, shares); not touched for SILU
    out,  # written, (B, H, Sq, Dv), contiguous
    lse,  # written, (B, H, Sq), contiguous; not touched for SILU
    sinks,  # (H,), float32; not touched unless SINKS
    normalizer,
    q_len,
    heads,
    shares,
    SILU: tl.constexpr,
    SINKS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_DIM: tl.constexpr,
):
    """out and lse of one query of one head: shares weighed by their log-sum-exp, or summed."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, VALUE)
    total = tl.zeros([VALUE], tl.float32)
    best = tl.full([1], float("-inf"), tl.float32)
    weight = tl.zeros([1], tl.float32)
    if SINKS:
        # The sink is one more share, of a key with a value of zero.
        best = tl.full([1], 0.0, tl.float32) + tl.load(sinks + row // q_len % heads) * LOG2_E
        weight += 1
    for first in range(0, shares, AT_ONCE):
        share = first + tl.arange(0, AT_ONCE)
        place = row * shares + share
        part = tl.load(
            share_out + place[:, None] * VALUE_DIM + column[None, :],
            mask=(share < shares)[:, None] & (column < VALUE_DIM)[None, :],
            other=0,
        )
        if SILU:
            total += tl.sum(part, 0)
        else:
            lse2 = tl.load(share_lse2 + place, mask=share < shares, other=float("-inf"))
            new_best = tl.maximum(best, tl.max(lse2, 0))
            # Where nothing has been seen yet: any finite number keeps -inf - base from becoming NaN.
            base = tl.where(new_best == float("-inf"), 0.0, new_best)
            weights = tl.exp2(lse2 - base)
            shrink = tl.exp2(best - base)
            weight = weight * shrink + tl.sum(weights, 0)
            total = total * shrink + tl.sum(part * weights[:, None], 0)
            best = new_best
    if SILU:
        total = total / normalizer
    else:
        total = total / tl.where(weight > 0, weight, 1.0)
        tl.store(lse + row + tl.arange(0, 1), (best + tl.log2(weight)) * LN_2)
    tl.store(out + row * VALUE_DIM + column, total.to(out.dtype.element_ty), mask=column < VALUE_DIM)


def forward_by_shares(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    compiled: CompiledMask,
    options: Options,
    split: Split,
) -> None:
    """Launch both kernels.

    Args:
        q, k, v, compiled, options: as for :class:`cmask_lab.kernels.registry.Backend`; the scale is positive.
        out: written, ``(B, H, Sq, Dv)``, contiguous.
        lse: written unless for "silu", float32 ``(B, H, Sq)``, contiguous.
        split: how the work is cut up.
    """
    (batch, heads, q_len, head_dim), (_, kv_heads, _, value_dim) = q.shape, v.shape
    group, shares = heads // kv_heads, split.shares
    head, value = padded(head_dim), padded(value_dim)
    share_out = torch.empty(batch, heads, q_len, shares, value_dim, dtype=torch.float32, device=q.device)
    share_lse2 = torch.empty(batch, heads, q_len, shares, dtype=torch.float32, device=q.device)
    items = batch * kv_heads * triton.cdiv(group, split.heads) * triton.cdiv(q_len, split.queries)
    attention_share[(items * shares,)](
        q,
        *q.stride(),
        in_pieces(k, split.blocks.keys, head),
        in_pieces(v, split.blocks.keys, value),
        share_out,
        share_lse2,
        *share_lists(compiled),
        options.scale,
        options.softcap,
        q_len,
        compiled.descriptor.q_tiles,
        kv_heads,
        group,
        shares,
        QUERIES=split.queries,
        HEAD_DIM=head_dim,
        VALUE_DIM=value_dim,
        **kernel_constants(compiled.descriptor, options, split.blocks, head, value, q.dtype),
    )
    merge_shares[(batch * heads * q_len,)](
        share_out,
        share_lse2,
        out,
        lse,
        lse if options.sinks is None else options.sinks.float().contiguous(),
        options.normalizer,
        q_len,
        heads,
        shares,
        SILU=options.activation == "silu",
        SINKS=options.sinks is not None,
        AT_ONCE=MERGED_AT_ONCE,
        VALUE=value,
        VALUE_DIM=value_dim,
        num_warps=4,
    )
