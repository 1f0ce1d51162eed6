"""The gradient of the queries by query tiles, for results that are the same bit for bit from run to run (sm_90).

:mod:`backward` adds to dQ from several programs in an order that varies. Here a program owns its query tile, as in the
forward pass, and forms dQ = dS K in registers; S and dP are computed a second time for it, two matrix products more
than the five.

Who does what in a program, by warps: two consumer warpgroups with 64 query rows each, and a producer warp that brings
Q and dO once an item, then blocks of 64 keys and values, by TMA.
"""

from __future__ import annotations

from cmask_lab.kernels.hopper.device import (
    KEY_FREE,
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
from cmask_lab.kernels.hopper.schedule import ITEM_WORDS
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

WORDS = gl.constexpr(ITEM_WORDS)
PRODUCER_SYNC = gl.constexpr(2 * 128 + 32)
BLOCK_K = gl.constexpr(64)
STAGES = gl.constexpr(4)
Q_TILE = gl.constexpr(128)


@gluon.jit
def _producer(arguments, KV_TILE: gl.constexpr, HEAD_GROUP: gl.constexpr):
    (
        query_tma, grad_tma, key_tma, value_tma, query_tiles, grad_tiles, key_tiles, value_tiles, query_full,
        query_free, kv_full, program_items, items, partial_tile, run_start, run_stop, heads,
    ) = arguments  # fmt: skip
    stage = 0
    query_phase = 1
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        record = items + item * WORDS
        query_start = gl.load(record)
        batch = gl.load(record + 1) // heads
        head = gl.load(record + 1) % heads
        kv_head = head // HEAD_GROUP
        partial, partial_stop, run, last_run = tile_lists(record)
        mbarrier.wait(query_free, query_phase)
        query_phase ^= 1
        mbarrier.expect(query_full, 2 * query_tma.block_type.nbytes + 2 * grad_tma.block_type.nbytes)
        for c in gl.static_range(2):
            tma.async_copy_global_to_shared(
                query_tma, [batch, head, query_start + c * 64, 0], query_full, query_tiles.index(c)
            )
            tma.async_copy_global_to_shared(
                grad_tma, [batch, head, query_start + c * 64, 0], query_full, grad_tiles.index(c)
            )
        while (partial < partial_stop) | (run < last_run):
            start, stop, partial, run = next_stretch(
                partial, partial_stop, run, partial_tile, run_start, run_stop, KV_TILE
            )
            while start < stop:
                barrier_sync(KEY_FREE + stage, PRODUCER_SYNC)
                mbarrier.expect(kv_full.index(stage), key_tma.block_type.nbytes + value_tma.block_type.nbytes)
                at = [batch, kv_head, start, 0]
                tma.async_copy_global_to_shared(key_tma, at, kv_full.index(stage), key_tiles.index(stage))
                tma.async_copy_global_to_shared(value_tma, at, kv_full.index(stage), value_tiles.index(stage))
                stage = (stage + 1) % STAGES
                start += BLOCK_K


@gluon.jit
def _consumer(
    arguments, CONSUMER: gl.constexpr, KV_TILE: gl.constexpr, HEAD_DIM: gl.constexpr, SOFTMAX: gl.constexpr,
    SOFTCAP: gl.constexpr,
):  # fmt: skip
    (
        dq_tma, base2_lse, delta, query_tiles, grad_tiles, key_tiles, value_tiles, query_full, query_free, kv_full,
        program_items, items, partial_pattern, patterns, score_scale, tanh_scale, dq_scale, q_rows,
    ) = arguments  # fmt: skip
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_K, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=dq_layout, k_width=2)
    dtype: gl.constexpr = query_tiles.dtype
    rows = CONSUMER * 64 + gl.arange(0, 64, gl.SliceLayout(1, scores_layout))
    query = query_tiles.index(CONSUMER)
    grad = grad_tiles.index(CONSUMER)
    zeros = gl.zeros([64, BLOCK_K], gl.float32, scores_layout)
    for s in gl.static_range(STAGES):
        barrier_arrive(KEY_FREE + s, PRODUCER_SYNC)
    stage = 0
    phase = 0
    query_phase = 0
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        record = items + item * WORDS
        query_start = gl.load(record)
        head_index = gl.load(record + 1)
        partial = gl.load(record + 2)
        partials = gl.load(record + 3)
        # The schedule counts the full tiles for the forward kernel, which takes the first tile out.
        tiles = partials + gl.load(record + 6) + (partials == 0).to(gl.int32)
        steps = tiles * (KV_TILE // BLOCK_K)
        masked_steps = partials * (KV_TILE // BLOCK_K)
        line = head_index.to(gl.int64) * q_rows + query_start
        lse = gl.load(base2_lse + line + rows)
        row_delta = gl.load(delta + line + rows)
        dq = gl.zeros([64, HEAD_DIM], gl.float32, dq_layout)
        mbarrier.wait(query_full, query_phase)
        query_phase ^= 1
        for step in range(steps):
            masked = (step < masked_steps).to(gl.int32)
            tile = step // (KV_TILE // BLOCK_K)
            words = pattern_words(
                patterns, gl.load(partial_pattern + (partial + tile) * masked), rows, Q_TILE, scores_layout, BLOCK_K
            )
            words = words >> (step % (KV_TILE // BLOCK_K) * (BLOCK_K // 4))
            mbarrier.wait(kv_full.index(stage), phase)
            key = key_tiles.index(stage)
            scores = warpgroup_mma(query, key.permute((1, 0)), zeros, use_acc=False, is_async=True)
            value = value_tiles.index(stage)
            weight_grads = warpgroup_mma(grad, value.permute((1, 0)), zeros, use_acc=False, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            _, slope = weights_and_slope(scores, lse[:, None], score_scale, tanh_scale, SOFTMAX, SOFTCAP, dtype)
            if masked != 0:
                slope = where_visible(slope, words, 0.0)
            weight_grads = warpgroup_mma_wait(0, deps=(weight_grads,))
            if SOFTMAX:
                weight_grads = weight_grads - row_delta[:, None]
            score_grad = gl.convert_layout((slope * weight_grads).to(dtype), operand)
            dq = warpgroup_mma(score_grad, key, dq, is_async=True)
            dq, score_grad = warpgroup_mma_wait(0, deps=(dq, score_grad))
            barrier_arrive(KEY_FREE + stage, PRODUCER_SYNC)
            stage, phase = next_stage(stage, phase, STAGES)
        # All warps of this consumer have read its Q for the last time: it becomes the place from which dQ is stored.
        partition_barrier()
        query.store((dq * dq_scale).to(dtype))
        fence_async_shared()
        partition_barrier()
        tma.async_copy_shared_to_global(dq_tma, [head_index, query_start + CONSUMER * 64, 0], query)
        tma.store_wait(0)
        mbarrier.arrive(query_free, count=1)


@gluon.jit(do_not_specialize=["heads"])
def query_gradient_kernel(
    query_tma, grad_tma, key_tma, value_tma, dq_tma, base2_lse, delta,
    program_items, items, partial_tile, partial_pattern, run_start, run_stop, patterns,
    score_scale, tanh_scale, dq_scale, heads, q_rows,
    KV_TILE: gl.constexpr, HEAD_DIM: gl.constexpr, HEAD_GROUP: gl.constexpr,
    SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr,
):  # fmt: skip
    """Shared memory, barriers, and the split into partitions. The work items are those of the forward pass."""
    dtype: gl.constexpr = query_tma.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    barrier_layout: gl.constexpr = mbarrier.MBarrierLayout()
    query_tiles = gl.allocate_shared_memory(dtype, [2, 64, HEAD_DIM], tile_layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [2, 64, HEAD_DIM], tile_layout)
    key_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, HEAD_DIM], tile_layout)
    value_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, HEAD_DIM], tile_layout)
    query_full = gl.allocate_shared_memory(gl.int64, [1], barrier_layout)
    query_free = gl.allocate_shared_memory(gl.int64, [1], barrier_layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier_layout)
    mbarrier.init(query_full, count=1)
    mbarrier.init(query_free, count=2)
    for s in gl.static_range(STAGES):
        mbarrier.init(kv_full.index(s), count=1)
    fence_async_shared()
    for_consumers = (
        dq_tma, base2_lse, delta, query_tiles, grad_tiles, key_tiles, value_tiles, query_full, query_free, kv_full,
        program_items, items, partial_pattern, patterns, score_scale, tanh_scale, dq_scale, q_rows,
    )  # fmt: skip
    for_producer = (
        query_tma, grad_tma, key_tma, value_tma, query_tiles, grad_tiles, key_tiles, value_tiles, query_full,
        query_free, kv_full, program_items, items, partial_tile, run_start, run_stop, heads,
    )  # fmt: skip
    gl.warp_specialize([
        (_consumer, (for_consumers, 0, KV_TILE, HEAD_DIM, SOFTMAX, SOFTCAP)),
        (_consumer, (for_consumers, 1, KV_TILE, HEAD_DIM, SOFTMAX, SOFTCAP)),
        (_producer, (for_producer, KV_TILE, HEAD_GROUP)),
    ], [4, 1], [240, 24])  # fmt: skip
