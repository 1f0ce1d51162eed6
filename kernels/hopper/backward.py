"""Backward attention on Hopper (sm_90): kv-tile-major, one persistent program a multiprocessor.

Who does what in a program, by warps:

====================  ==========================================================================================
consumers             two warpgroups (four warps each, 240 registers a thread); each owns 64 of the tile's 128
                      keys and keeps its dK and dV in registers over all query tiles that see them
producer              one warp (24 registers): brings K and V once for a kv tile, then Q, dO, LSE and delta of
                      one query tile after another, by TMA
====================  ==========================================================================================

For a query tile of ``BLOCK_Q`` rows a consumer computes, transposed so that the results stay in its registers,

    Sᵀ = K Qᵀ        dPᵀ = V dOᵀ        Pᵀ = exp2(Sᵀ - LSE)        dSᵀ = Pᵀ · (dPᵀ - delta)
    dV += Pᵀ dO      dK += dSᵀ Q

and puts its half of dS into shared memory. When both halves are there, each consumer computes half of ``dQ = dS K``
(half the columns for head dimension 128, half the rows for 64) and adds it to float32 sums in global memory, four
numbers an instruction, in the order in which its registers hold them (:func:`finish_kernel` puts them right). The
order of these additions varies from run to run; :mod:`query_gradient` has the variant in which it doesn't.

What bounds the loop is shared memory as much as the tensor cores: a block of 64 queries moves about 300 KiB through it,
2,400 cycles at 128 bytes a cycle, and multiplies for 2,560. Sums that went through shared memory, too, made it 368 KiB.

Work items are those of the transposed descriptor (:mod:`schedule`): with grouped heads, the ``HEAD_GROUP`` records of
the query heads that share a key head follow one another, and dK and dV are written after the last.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl
from cmask_lab.kernels.device import multiprocessors
from cmask_lab.kernels.hopper.device import (
    barrier_arrive,
    barrier_sync,
    next_stage,
    next_stretch,
    pattern_words,
    tile_lists,
    weights_and_slope,
    where_visible,
)
from cmask_lab.kernels.hopper.gluon_names import partition_barrier
from cmask_lab.kernels.hopper.launch import row_descriptor, score_scales, tile_descriptor
from cmask_lab.kernels.hopper.query_gradient import BLOCK_K, query_gradient_kernel
from cmask_lab.kernels.hopper.schedule import BACKWARD_TILE, ITEM_WORDS, backward_schedule, forward_schedule
from cmask_lab.kernels.portable.tiles import LOG2_E
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.scales import positive_scale
from cmask_lab.kernels.sinks import sink_gradient
from cmask_lab.kernels.tensor_maps import padded_head_dim, tma_ready
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from cmask_lab.compiler.compile import CompiledMask

WORDS = gl.constexpr(ITEM_WORDS)
STAGES = gl.constexpr(2)
KV_TILE = gl.constexpr(128)
DQ_BLOCK = gl.constexpr(64 * 64)
"""Float32 sums in what one consumer adds to dQ at a time."""

# Named barriers (see device.py for which are free), and how many threads meet at them.
QUERY_FREE = gl.constexpr(5)
"""First of two: a stage of queries may be filled again."""
GRAD_FREE = gl.constexpr(7)
"""First of two: a stage of output gradients may be filled again."""
SCORE_GRAD_FULL = gl.constexpr(9)
"""Both halves of dS are in shared memory."""
WITH_PRODUCER = gl.constexpr(2 * 128 + 32)


@gluon.jit
def _producer(arguments, Q_TILE: gl.constexpr, BLOCK_Q: gl.constexpr, HEAD_GROUP: gl.constexpr):
    (
        query_tma, grad_tma, key_tma, value_tma, lse_tma, delta_tma, query_tiles, grad_tiles, key_tile, value_tile,
        lse_rows, delta_rows, kv_full, kv_free, query_full, grad_full,
        program_items, items, partial_tile, run_start, run_stop, heads, q_rows,
    ) = arguments  # fmt: skip
    stage = 0
    kv_phase = 1
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        first = items + item * (HEAD_GROUP * WORDS)
        key_start = gl.load(first)
        batch = gl.load(first + 1) // heads
        kv_head = gl.load(first + 1) % heads // HEAD_GROUP
        mbarrier.wait(kv_free, kv_phase)
        kv_phase ^= 1
        mbarrier.expect(kv_full, key_tma.block_type.nbytes + value_tma.block_type.nbytes)
        tma.async_copy_global_to_shared(key_tma, [batch, kv_head, key_start, 0], kv_full, key_tile)
        tma.async_copy_global_to_shared(value_tma, [batch, kv_head, key_start, 0], kv_full, value_tile)
        for member in range(HEAD_GROUP):
            record = first + member * WORDS
            head_index = gl.load(record + 1)
            head = head_index % heads
            partial, partial_stop, run, last_run = tile_lists(record)
            while (partial < partial_stop) | (run < last_run):
                start, stop, partial, run = next_stretch(
                    partial, partial_stop, run, partial_tile, run_start, run_stop, Q_TILE
                )
                while start < stop:
                    barrier_sync(QUERY_FREE + stage, WITH_PRODUCER)
                    mbarrier.expect(query_full.index(stage), query_tma.block_type.nbytes + BLOCK_Q * 4)
                    tma.async_copy_global_to_shared(
                        query_tma, [batch, head, start, 0], query_full.index(stage), query_tiles.index(stage)
                    )
                    for part in gl.static_range(BLOCK_Q // 64):
                        tma.async_copy_global_to_shared(
                            lse_tma,
                            [head_index * q_rows + start + part * 64],
                            query_full.index(stage),
                            lse_rows.index(stage * (BLOCK_Q // 64) + part),
                        )
                    barrier_sync(GRAD_FREE + stage, WITH_PRODUCER)
                    mbarrier.expect(grad_full.index(stage), grad_tma.block_type.nbytes + BLOCK_Q * 4)
                    tma.async_copy_global_to_shared(
                        grad_tma, [batch, head, start, 0], grad_full.index(stage), grad_tiles.index(stage)
                    )
                    for part in gl.static_range(BLOCK_Q // 64):
                        tma.async_copy_global_to_shared(
                            delta_tma,
                            [head_index * q_rows + start + part * 64],
                            grad_full.index(stage),
                            delta_rows.index(stage * (BLOCK_Q // 64) + part),
                        )
                    stage = (stage + 1) % STAGES
                    start += BLOCK_Q


@gluon.jit
def _add(sums, dq):
    """Adds a 64×64 accumulator to 4,096 sums in memory, in the order of its registers: no data moves between threads.

    A thread has, for each of eight octets of columns, four numbers: columns 2 w and 2 w + 1 of rows r and r + 8.
    """
    by_register = gl.permute(gl.reshape(dq, [4, 2, 8, 8, 4, 2]), [3, 0, 2, 4, 1, 5])  # octet, warp, r, w, row, column
    values = gl.reshape(by_register, [8, 128, 4])
    layout: gl.constexpr = values.type.layout
    octet = gl.arange(0, 8, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    thread = gl.arange(0, 128, gl.SliceLayout(0, gl.SliceLayout(2, layout)))
    four = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, layout)))
    place = octet[:, None, None] * 512 + thread[None, :, None] * 4 + four[None, None, :]
    gl.atomic_add(sums + place, values, sem="relaxed")


@gluon.jit
def _query_gradient(score_grads, key_half, CONSUMER: gl.constexpr, HEAD_DIM: gl.constexpr):
    """Starts this consumer's half of dS K, 64×64: half the columns for head dimension 128, half the rows for 64."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    rows = score_grads.permute((1, 0))
    if HEAD_DIM == 64:
        rows = rows.slice(CONSUMER * 64, 64, dim=0)
    zeros = gl.zeros([64, 64], gl.float32, layout)
    return warpgroup_mma(rows, key_half, zeros, use_acc=False, is_async=True)


@gluon.jit
def _step(
    dq_sums, own_keys, own_values, key_half, query_tiles, grad_tiles, lse_rows, delta_rows, score_grads,
    query_full, grad_full, stage, phase, dk, dv, score_scale, tanh_scale, masked, words,
    CONSUMER: gl.constexpr, BLOCK_Q: gl.constexpr, HEAD_DIM: gl.constexpr, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr,
    WITH_DQ: gl.constexpr,
):  # fmt: skip
    """One block of queries, 64 at a time: adds to dk and dv, and to the sums of dQ."""
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=out_layout, k_width=2)
    per_query: gl.constexpr = gl.SliceLayout(0, scores_layout)
    PARTS: gl.constexpr = BLOCK_Q // 64
    dtype: gl.constexpr = query_tiles.dtype
    zeros = gl.zeros([64, 64], gl.float32, scores_layout)
    own_score_grads = score_grads.index(stage).slice(CONSUMER * 64, 64, dim=0)

    for part in gl.static_range(PARTS):
        query = query_tiles.index(stage).slice(part * 64, 64, dim=0)
        grad = grad_tiles.index(stage).slice(part * 64, 64, dim=0)
        if part == 0:
            mbarrier.wait(query_full.index(stage), phase)
        scores = warpgroup_mma(own_keys, query.permute((1, 0)), zeros, use_acc=False, is_async=True)
        if part == 0:
            mbarrier.wait(grad_full.index(stage), phase)
        weight_grads = warpgroup_mma(own_values, grad.permute((1, 0)), zeros, use_acc=False, is_async=True)
        lse = lse_rows.index(stage * PARTS + part).load(per_query)
        if part == 0:
            scores = warpgroup_mma_wait(1, deps=(scores,))
        else:
            scores, dk, dv, weights16, score_grad16 = warpgroup_mma_wait(
                1,
                deps=(scores, dk, dv, weights16, score_grad16),  # noqa: F821 - the last two of the part before
            )
        weights, slope = weights_and_slope(scores, lse[None, :], score_scale, tanh_scale, SOFTMAX, SOFTCAP, dtype)
        if masked != 0:
            weights = where_visible(weights, words, 0.0)
            slope = where_visible(slope, words, 0.0)
        words = words >> 16  # a word holds 16 bits of each 64 queries
        weights16 = gl.convert_layout(weights.to(dtype), operand)
        delta = delta_rows.index(stage * PARTS + part).load(per_query)
        weight_grads = warpgroup_mma_wait(0, deps=(weight_grads,))
        if SOFTMAX:
            weight_grads = weight_grads - delta[None, :]
        score_grad = (slope * weight_grads).to(dtype)
        score_grad16 = gl.convert_layout(score_grad, operand)
        dv = warpgroup_mma(weights16, grad, dv, is_async=True)
        if WITH_DQ:
            # Two buffers in turn: the other consumer can't still read this one, or it had not passed the last barrier.
            own_score_grads.slice(part * 64, 64, dim=1).store(score_grad)
        if part + 1 < PARTS:
            dk = warpgroup_mma(score_grad16, query, dk, is_async=True)
    if WITH_DQ:
        fence_async_shared()
        barrier_sync(SCORE_GRAD_FULL, 256)
        dq = _query_gradient(score_grads.index(stage), key_half, CONSUMER, HEAD_DIM)
        dk = warpgroup_mma(score_grad16, query, dk, is_async=True)
        dq, dv, weights16 = warpgroup_mma_wait(1, deps=(dq, dv, weights16))
        barrier_arrive(GRAD_FREE + stage, WITH_PRODUCER)
        _add(dq_sums, dq)
    else:
        dk = warpgroup_mma(score_grad16, query, dk, is_async=True)
        dv, weights16 = warpgroup_mma_wait(1, deps=(dv, weights16))
        barrier_arrive(GRAD_FREE + stage, WITH_PRODUCER)
    dk, score_grad16 = warpgroup_mma_wait(0, deps=(dk, score_grad16))
    barrier_arrive(QUERY_FREE + stage, WITH_PRODUCER)
    return dk, dv, words


@gluon.jit
def _consumer(
    arguments, CONSUMER: gl.constexpr, Q_TILE: gl.constexpr, BLOCK_Q: gl.constexpr, HEAD_DIM: gl.constexpr,
    HEAD_GROUP: gl.constexpr, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, WITH_DQ: gl.constexpr,
):  # fmt: skip
    (
        dq_sum, dk_tma, dv_tma, query_tiles, grad_tiles, key_tile, value_tile, lse_rows, delta_rows, score_grads,
        dk_tiles, dv_tiles, kv_full, kv_free, query_full, grad_full,
        program_items, items, partial_tile, partial_pattern, run_start, run_stop, patterns,
        score_scale, tanh_scale, dk_scale, dv_scale, q_rows,
    ) = arguments  # fmt: skip
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    dtype: gl.constexpr = query_tiles.dtype
    rows = CONSUMER * 64 + gl.arange(0, 64, gl.SliceLayout(1, scores_layout))
    own_keys = key_tile.slice(CONSUMER * 64, 64, dim=0)
    own_values = value_tile.slice(CONSUMER * 64, 64, dim=0)
    key_half = key_tile
    if HEAD_DIM == 128:
        key_half = key_tile.slice(CONSUMER * 64, 64, dim=1)
    for s in gl.static_range(STAGES):
        barrier_arrive(QUERY_FREE + s, WITH_PRODUCER)
        barrier_arrive(GRAD_FREE + s, WITH_PRODUCER)
    stage = 0
    phase = 0
    kv_phase = 0
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        first = items + item * (HEAD_GROUP * WORDS)
        dk = gl.zeros([64, HEAD_DIM], gl.float32, out_layout)
        dv = gl.zeros([64, HEAD_DIM], gl.float32, out_layout)
        mbarrier.wait(kv_full, kv_phase)
        kv_phase ^= 1
        for member in range(HEAD_GROUP):
            record = first + member * WORDS
            # A block of BLOCK_Q rows has two blocks of sums, one a consumer.
            head_sums = dq_sum + gl.load(record + 1).to(gl.int64) * (q_rows * HEAD_DIM) + CONSUMER * DQ_BLOCK
            partial = gl.load(record + 2)
            partials = gl.load(record + 3)
            run = gl.load(record + 4)
            runs = gl.load(record + 5)
            # One loop body for masked and unmasked tiles: a second copy of it would cost registers.
            for t in range(partials + runs):
                masked = (t < partials).to(gl.int32)
                words = pattern_words(
                    patterns, gl.load(partial_pattern + (partial + t) * masked), rows, KV_TILE, scores_layout, 64
                )
                if masked != 0:
                    start = gl.load(partial_tile + partial + t) * Q_TILE
                    stop = start + Q_TILE
                else:
                    start = gl.load(run_start + run + t - partials) * Q_TILE
                    stop = gl.load(run_stop + run + t - partials) * Q_TILE
                for query_start in range(start, stop, BLOCK_Q):
                    dk, dv, words = _step(
                        head_sums + query_start * HEAD_DIM, own_keys, own_values, key_half, query_tiles, grad_tiles,
                        lse_rows, delta_rows, score_grads, query_full, grad_full, stage, phase, dk, dv,
                        score_scale, tanh_scale, masked, words,
                        CONSUMER, BLOCK_Q, HEAD_DIM, SOFTMAX, SOFTCAP, WITH_DQ,
                    )  # fmt: skip
                    stage, phase = next_stage(stage, phase, STAGES)
        mbarrier.arrive(kv_free, count=1)
        tma.store_wait(0)
        partition_barrier()
        dk_tile = dk_tiles.index(CONSUMER)
        dv_tile = dv_tiles.index(CONSUMER)
        dk_tile.store((dk * dk_scale).to(dtype))
        dv_tile.store((dv * dv_scale).to(dtype))
        fence_async_shared()
        partition_barrier()
        key_start = gl.load(first) + CONSUMER * 64
        kv_head_index = gl.load(first + 1) // HEAD_GROUP
        tma.async_copy_shared_to_global(dk_tma, [kv_head_index, key_start, 0], dk_tile)
        tma.async_copy_shared_to_global(dv_tma, [kv_head_index, key_start, 0], dv_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads"])
def backward_kernel(
    query_tma, grad_tma, key_tma, value_tma, lse_tma, delta_tma, dq_sum, dk_tma, dv_tma,
    program_items, items, partial_tile, partial_pattern, run_start, run_stop, patterns,
    score_scale, tanh_scale, dk_scale, dv_scale, heads, q_rows,
    Q_TILE: gl.constexpr, BLOCK_Q: gl.constexpr, HEAD_DIM: gl.constexpr, HEAD_GROUP: gl.constexpr,
    SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, WITH_DQ: gl.constexpr,
):  # fmt: skip
    """Shared memory, barriers, and the split into partitions. See :func:`backward` for the arguments."""
    dtype: gl.constexpr = query_tma.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    barrier_layout: gl.constexpr = mbarrier.MBarrierLayout()
    key_tile = gl.allocate_shared_memory(dtype, [KV_TILE, HEAD_DIM], tile_layout)
    value_tile = gl.allocate_shared_memory(dtype, [KV_TILE, HEAD_DIM], tile_layout)
    query_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_Q, HEAD_DIM], tile_layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_Q, HEAD_DIM], tile_layout)
    score_grads = gl.allocate_shared_memory(dtype, [STAGES, KV_TILE, BLOCK_Q], tile_layout)
    dk_tiles = gl.allocate_shared_memory(dtype, [2, 64, HEAD_DIM], tile_layout)
    dv_tiles = gl.allocate_shared_memory(dtype, [2, 64, HEAD_DIM], tile_layout)
    lse_rows = gl.allocate_shared_memory(gl.float32, [STAGES * BLOCK_Q // 64, 64], lse_tma.layout)
    delta_rows = gl.allocate_shared_memory(gl.float32, [STAGES * BLOCK_Q // 64, 64], lse_tma.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [1], barrier_layout)
    kv_free = gl.allocate_shared_memory(gl.int64, [1], barrier_layout)
    query_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier_layout)
    grad_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier_layout)
    mbarrier.init(kv_full, count=1)
    mbarrier.init(kv_free, count=2)
    for s in gl.static_range(STAGES):
        mbarrier.init(query_full.index(s), count=1)
        mbarrier.init(grad_full.index(s), count=1)
    fence_async_shared()
    for_consumers = (
        dq_sum, dk_tma, dv_tma, query_tiles, grad_tiles, key_tile, value_tile, lse_rows, delta_rows, score_grads,
        dk_tiles, dv_tiles, kv_full, kv_free, query_full, grad_full,
        program_items, items, partial_tile, partial_pattern, run_start, run_stop, patterns,
        score_scale, tanh_scale, dk_scale, dv_scale, q_rows,
    )  # fmt: skip
    for_producer = (
        query_tma, grad_tma, key_tma, value_tma, lse_tma, delta_tma, query_tiles, grad_tiles, key_tile, value_tile,
        lse_rows, delta_rows, kv_full, kv_free, query_full, grad_full,
        program_items, items, partial_tile, run_start, run_stop, heads, q_rows,
    )  # fmt: skip
    gl.warp_specialize([
        (_consumer, (for_consumers, 0, Q_TILE, BLOCK_Q, HEAD_DIM, HEAD_GROUP, SOFTMAX, SOFTCAP, WITH_DQ)),
        (_consumer, (for_consumers, 1, Q_TILE, BLOCK_Q, HEAD_DIM, HEAD_GROUP, SOFTMAX, SOFTCAP, WITH_DQ)),
        (_producer, (for_producer, Q_TILE, BLOCK_Q, HEAD_GROUP)),
    ], [4, 1], [240, 24])  # fmt: skip


@triton.jit(do_not_specialize=["heads", "q_len", "lse_batch", "lse_head", "lse_row"])
def prepare_kernel(
    out, grad_out, grad_lse, lse, base2_lse, delta, dq, heads, q_len, q_rows, head_dim,
    out_batch, out_head, out_row, grad_batch, grad_head, grad_row, grad_column, lse_batch, lse_head, lse_row,
    SOFTMAX: tl.constexpr, WITH_GRAD_LSE: tl.constexpr, WITH_DQ: tl.constexpr, HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """For ``ROWS`` rows of one head: delta = sum(O · dO) - dLSE, LSE in base 2 (+inf where nothing is seen), dQ = 0."""
    row_blocks = tl.cdiv(q_rows, ROWS)
    head_index = tl.program_id(0) // row_blocks
    rows = tl.program_id(0) % row_blocks * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, HEAD_DIM)
    batch = (head_index // heads).to(tl.int64)
    head = (head_index % heads).to(tl.int64)
    line = head_index.to(tl.int64) * q_rows + rows
    inside = rows < q_len
    if SOFTMAX:
        cells = inside[:, None] & (columns < head_dim)[None, :]
        at_row = rows.to(tl.int64)[:, None]
        o = tl.load(out + batch * out_batch + head * out_head + at_row * out_row + columns[None, :], cells, 0.0)
        grad_rows = grad_out + batch * grad_batch + head * grad_head + at_row * grad_row
        g = tl.load(grad_rows + columns.to(tl.int64)[None, :] * grad_column, cells, 0.0)
        d = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
        natural = tl.load(lse + (head_index.to(tl.int64) * q_len + rows), inside, float("-inf"))
        sees = natural > float("-inf")
        if WITH_GRAD_LSE:
            grad_lse_rows = grad_lse + batch * lse_batch + head * lse_head + rows.to(tl.int64) * lse_row
            d -= tl.load(grad_lse_rows, inside, 0.0).to(tl.float32)
        tl.store(delta + line, tl.where(sees, d, 0.0))
        tl.store(base2_lse + line, tl.where(sees, natural * LOG2_E, float("inf")))
    if WITH_DQ:
        cells = (rows < q_rows)[:, None] & (columns < HEAD_DIM)[None, :]
        tl.store(dq + line[:, None] * HEAD_DIM + columns[None, :], tl.zeros([ROWS, HEAD_DIM], tl.float32), cells)


@triton.jit(do_not_specialize=["q_len"])
def finish_kernel(dq_sum, dq, scale, q_len, q_rows, head_dim, HEAD_DIM: tl.constexpr):
    """dQ in the dtype of Q, 64 rows and 64 columns a program: sums from the order of :func:`_add`, times the scale."""
    blocks = q_rows // 64 * (HEAD_DIM // 64)
    head_index = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    sums = tl.load(dq_sum + head_index * q_rows * HEAD_DIM + block * 4096 + tl.arange(0, 4096))
    by_register = tl.reshape(sums, [8, 4, 8, 4, 2, 2])  # octet, warp, r, w, row, column
    cells = tl.reshape(tl.permute(by_register, [1, 4, 2, 0, 3, 5]), [64, 64])
    rows = block // (HEAD_DIM // 64) * 64 + tl.arange(0, 64)
    columns = block % (HEAD_DIM // 64) * 64 + tl.arange(0, 64)
    target = dq + ((head_index * q_len + rows) * head_dim)[:, None] + columns[None, :]
    inside = (rows < q_len)[:, None] & (columns < head_dim)[None, :]
    tl.store(target, (cells * scale).to(dq.dtype.element_ty), inside)


PREPARE_ROWS = 64


def block_q(head_dim: int) -> int:
    """Queries in a block: as many as leave the accumulators in registers."""
    return 64 if head_dim == 128 else 128


def backward(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    compiled: CompiledMask,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Run the kernels: gradients of query, key, value and sinks; see ``Backend.backward``."""
    batch, heads, q_len, real_dim = query.shape
    kv_heads, kv_len = key.shape[1], key.shape[2]
    device = query.device
    softmax, with_dq = options.activation == "softmax", not options.deterministic
    dq = torch.empty((batch, heads, q_len, real_dim), dtype=query.dtype, device=device)
    dk = torch.empty((batch, kv_heads, kv_len, real_dim), dtype=query.dtype, device=device)
    dv = torch.empty_like(dk)
    if q_len == 0 or kv_len == 0 or batch * heads == 0:
        dsinks = None
        if options.sinks is not None and lse is not None:
            dsinks = sink_gradient(options.sinks, lse, torch.zeros_like(lse) if grad_lse is None else -grad_lse)
        return dq.zero_(), dk.zero_(), dv.zero_(), dsinks
    head_dim = padded_head_dim(real_dim)
    # Rows of every head padded to whole tiles: no block of LSE, delta or dQ touches the next head.
    q_rows = -(-q_len // 128) * 128
    base2_lse = torch.empty((batch * heads, q_rows), dtype=torch.float32, device=device)
    delta = torch.empty_like(base2_lse)
    dq_sum = base2_lse  # stands in where nothing is summed
    if with_dq:
        dq_sum = torch.empty((batch * heads, q_rows, head_dim), dtype=torch.float32, device=device)
    prepare_kernel[(batch * heads * (q_rows // PREPARE_ROWS),)](
        out, grad_out, grad_lse, lse, base2_lse, delta, dq_sum, heads, q_len, q_rows, real_dim,
        *out.stride()[:3], *grad_out.stride(), *(grad_lse.stride() if grad_lse is not None else (0, 0, 0)),
        SOFTMAX=softmax, WITH_GRAD_LSE=grad_lse is not None, WITH_DQ=with_dq, HEAD_DIM=head_dim, ROWS=PREPARE_ROWS,
    )  # fmt: skip
    dsinks = None
    if options.sinks is not None:
        assert lse is not None, "a softmax has a log-sum-exp"
        dsinks = sink_gradient(options.sinks, lse, delta.view(batch, heads, q_rows)[:, :, :q_len])
    # With the scale made positive the gradient of the queries still has the scale as given.
    dq_scale = options.scale / options.normalizer
    query, key, value, grad_out = (tma_ready(tensor) for tensor in (query, key, value, grad_out))
    query, scale = positive_scale(query, options.scale)
    score_scale, tanh_scale = score_scales(replace(options, scale=scale))
    rows = block_q(head_dim)
    work = backward_schedule(compiled, batch, heads, kv_heads, multiprocessors(device))
    backward_kernel[(work.programs,)](
        tile_descriptor(query, rows),
        tile_descriptor(grad_out, rows),
        tile_descriptor(key, KV_TILE.value),
        tile_descriptor(value, KV_TILE.value),
        row_descriptor(base2_lse, 64),
        row_descriptor(delta, 64),
        dq_sum,
        tile_descriptor(dk.view(batch * kv_heads, kv_len, real_dim), 64),
        tile_descriptor(dv.view(batch * kv_heads, kv_len, real_dim), 64),
        *work.arrays(),
        score_scale,
        tanh_scale,
        scale / options.normalizer,
        1.0 / options.normalizer,
        heads,
        q_rows,
        Q_TILE=BACKWARD_TILE[0],
        BLOCK_Q=rows,
        HEAD_DIM=head_dim,
        HEAD_GROUP=heads // kv_heads,
        SOFTMAX=softmax,
        SOFTCAP=options.softcap > 0,
        WITH_DQ=with_dq,
        num_warps=4,
    )
    if with_dq:
        finish_kernel[(dq_sum.numel() // DQ_BLOCK.value,)](
            dq_sum, dq, dq_scale, q_len, q_rows, real_dim, HEAD_DIM=head_dim
        )
        return dq, dk, dv, dsinks
    work = forward_schedule(compiled, batch, heads, multiprocessors(device), tiles=(BACKWARD_TILE,))
    query_gradient_kernel[(work.programs,)](
        tile_descriptor(query, 64),
        tile_descriptor(grad_out, 64),
        tile_descriptor(key, BLOCK_K.value),
        tile_descriptor(value, BLOCK_K.value),
        tile_descriptor(dq.view(batch * heads, q_len, real_dim), 64),
        base2_lse,
        delta,
        *work.arrays(),
        score_scale,
        tanh_scale,
        dq_scale,
        heads,
        q_rows,
        KV_TILE=BACKWARD_TILE[1],
        HEAD_DIM=head_dim,
        HEAD_GROUP=heads // kv_heads,
        SOFTMAX=softmax,
        SOFTCAP=options.softcap > 0,
        num_warps=4,
    )
    return dq, dk, dv, dsinks
