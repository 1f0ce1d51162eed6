"""Forward attention on Hopper (sm_90): one persistent program a multiprocessor.

Who does what in a program, by warps:

====================  ==========================================================================================
consumers             two warpgroups (four warps each, 240 registers a thread), each with 64 of the tile's 128
                      query rows: S = Q Kᵀ and O += P V by ``wgmma``, softmax in registers, O by TMA.
                      For small heads and long rows three, with 160 registers; for tiles of 64 queries one
producer              one warp (24 registers): walks the work list, brings Q, K and V into shared memory by TMA
====================  ==========================================================================================

Every program has its own list of work items (:mod:`schedule`); an item is one query tile of one head. Its partial tiles
come first, then its runs of full tiles, as one stream: the pipeline never drains between them. In the main loop a
consumer issues ``S = Q Kᵀ`` for the next tile before ``O += P V`` for the one before, so that its exponentials run
while the tensor cores multiply. Consumers don't wait for one another: soon one's exponentials cover another's products.

Scores are kept in base 2: ``exp(x) = exp2(x · log2 e)``, and the factor is folded into the scale. The first tile of an
item is always masked; when it is full its pattern is all ones, and an item that has no tiles visits one with an empty
pattern.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from cmask_lab.kernels.device import multiprocessors
from cmask_lab.kernels.hopper.device import (
    KEY_FREE,
    LN_2,
    LOG2_E,
    VALUE_FREE,
    barrier_arrive,
    barrier_sync,
    exact_tanh,
    next_stage,
    next_stretch,
    partial_row_sums,
    pattern_words,
    tanh_of,
    tile_lists,
    where_visible,
)
from cmask_lab.kernels.hopper.gluon_names import partition_barrier
from cmask_lab.kernels.hopper.launch import score_scales, stages, tile_descriptor
from cmask_lab.kernels.hopper.schedule import (
    FORWARD_TILES,
    ITEM_WORDS,
    THREE_CONSUMERS,
    forward_schedule,
    three_consumers,
)
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.scales import positive_scale
from cmask_lab.kernels.sinks import nothing_visible
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

LOWEST_MAX = gl.constexpr(-1.0e29)
"""Floor of the running maximum: a row that has seen nothing gets exp2(-inf + 1e29) = 0 and never inf - inf."""
WORDS = gl.constexpr(ITEM_WORDS)


@gluon.jit
def _producer(
    arguments, CONSUMERS: gl.constexpr, KV_TILE: gl.constexpr, STAGES: gl.constexpr, HEAD_GROUP: gl.constexpr
):
    (
        query_tma, key_tma, value_tma, query_tiles, key_tiles, value_tiles, query_full, query_free, key_full,
        value_full, program_items, items, partial_tile, run_start, run_stop, heads,
    ) = arguments  # fmt: skip
    threads: gl.constexpr = CONSUMERS * 128 + 32
    stage = 0
    query_buffer = 0
    query_phase = 1
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        record = items + item * WORDS
        query_start = gl.load(record)
        batch = gl.load(record + 1) // heads
        head = gl.load(record + 1) % heads
        kv_head = head // HEAD_GROUP
        partial, partial_stop, run, last_run = tile_lists(record)
        mbarrier.wait(query_free.index(query_buffer), query_phase)
        mbarrier.expect(query_full.index(query_buffer), CONSUMERS * query_tma.block_type.nbytes)
        for c in gl.static_range(CONSUMERS):
            tma.async_copy_global_to_shared(
                query_tma,
                [batch, head, query_start + c * 64, 0],
                query_full.index(query_buffer),
                query_tiles.index(query_buffer * CONSUMERS + c),
            )
        query_buffer, query_phase = next_stage(query_buffer, query_phase, 2)
        # One loop over both lists: every step is a partial tile or a whole run.
        while (partial < partial_stop) | (run < last_run):
            start, stop, partial, run = next_stretch(
                partial, partial_stop, run, partial_tile, run_start, run_stop, KV_TILE
            )
            while start < stop:
                barrier_sync(KEY_FREE + stage, threads)
                mbarrier.expect(key_full.index(stage), key_tma.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    key_tma, [batch, kv_head, start, 0], key_full.index(stage), key_tiles.index(stage)
                )
                barrier_sync(VALUE_FREE + stage, threads)
                mbarrier.expect(value_full.index(stage), value_tma.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    value_tma, [batch, kv_head, start, 0], value_full.index(stage), value_tiles.index(stage)
                )
                stage = (stage + 1) % STAGES
                start += KV_TILE


@gluon.jit
def _weights(
    scores, row_max, score_scale, tanh_scale, words,
    MASKED: gl.constexpr, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, dtype: gl.constexpr,
):  # fmt: skip
    """Scores of a tile to weights: the unnormalised softmax with its new running maximum, or SiLU.

    Returns weights, the new maximum, and the factor by which what was summed under the old maximum shrinks.
    """
    if SOFTCAP:
        scores = exact_tanh(scores * tanh_scale)
    if SOFTMAX:
        if MASKED:
            scores = where_visible(scores, words, float("-inf"))
        new_max = gl.maximum(row_max, gl.max(scores, 1) * score_scale)
        shrink = gl.exp2(row_max - new_max)
        weights = gl.exp2(scores * score_scale - new_max[:, None])
    else:
        half = scores * score_scale  # of what SiLU is taken of
        weights = half + half * tanh_of(half, dtype)
        if MASKED:
            weights = where_visible(weights, words, 0.0)
        new_max = row_max
        shrink = row_max
    return weights, new_max, shrink


@gluon.jit
def _step(
    query, key_tiles, value_tiles, key_full, value_full, stage, phase, before, before_phase,
    out, weights, row_max, row_sum, score_scale, tanh_scale, words,
    MASKED: gl.constexpr, CONSUMERS: gl.constexpr, KV_TILE: gl.constexpr,
    SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, scores_layout: gl.constexpr, out_layout: gl.constexpr,
):  # fmt: skip
    """Scores and weights of the tile in ``stage``; output of the tile in stage ``before``, whose weights came in."""
    threads: gl.constexpr = CONSUMERS * 128 + 32
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=out_layout, k_width=2)
    mbarrier.wait(key_full.index(stage), phase)
    scores = warpgroup_mma(
        query,
        key_tiles.index(stage).permute((1, 0)),
        gl.zeros([64, KV_TILE], gl.float32, scores_layout),
        use_acc=False,
        is_async=True,
    )
    mbarrier.wait(value_full.index(before), before_phase)
    out = warpgroup_mma(weights, value_tiles.index(before), out, is_async=True)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    barrier_arrive(KEY_FREE + stage, threads)
    new_weights, row_max, shrink = _weights(
        scores, row_max, score_scale, tanh_scale, words, MASKED, SOFTMAX, SOFTCAP, weights.dtype
    )
    if SOFTMAX:
        sums = partial_row_sums(new_weights)
        row_sum = row_sum * gl.convert_layout(shrink, gl.SliceLayout(1, row_sum.type.layout))[:, None] + sums
    new_weights = gl.convert_layout(new_weights.to(weights.dtype), operand)
    out, weights, new_weights, shrink = warpgroup_mma_wait(0, deps=(out, weights, new_weights, shrink))
    barrier_arrive(VALUE_FREE + before, threads)
    if SOFTMAX:
        out = out * gl.convert_layout(shrink, gl.SliceLayout(1, out_layout))[:, None]
    return out, new_weights, row_max, row_sum


@gluon.jit
def _consumer(
    arguments, CONSUMER: gl.constexpr, CONSUMERS: gl.constexpr, KV_TILE: gl.constexpr, HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, SINKS: gl.constexpr,
):  # fmt: skip
    (
        out_tma, lse, sinks, query_tiles, out_tiles, key_tiles, value_tiles, query_full, query_free, key_full,
        value_full, program_items, items, partial_pattern, patterns, score_scale, tanh_scale, out_scale, q_len, heads,
    ) = arguments  # fmt: skip
    threads: gl.constexpr = CONSUMERS * 128 + 32
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KV_TILE, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=out_layout, k_width=2)
    row_layout: gl.constexpr = gl.SliceLayout(1, scores_layout)
    out_row_layout: gl.constexpr = gl.SliceLayout(1, out_layout)
    # Three consumers have a pattern of 64 rows each, one or two share a pattern.
    NUMBERS: gl.constexpr = 3 if CONSUMERS == 3 else 1
    PATTERN_ROWS: gl.constexpr = 64 if CONSUMERS == 3 else CONSUMERS * 64
    own: gl.constexpr = CONSUMER % NUMBERS
    dtype: gl.constexpr = query_tiles.dtype
    query_row = CONSUMER * 64 + gl.arange(0, 64, row_layout)
    rows = query_row % PATTERN_ROWS
    out_tile = out_tiles.index(CONSUMER)

    for s in gl.static_range(STAGES):
        barrier_arrive(KEY_FREE + s, threads)
        barrier_arrive(VALUE_FREE + s, threads)
    before = STAGES - 1
    before_phase = 1
    query_buffer = 0
    query_phase = 0
    for item in range(gl.load(program_items + gl.program_id(0)), gl.load(program_items + gl.program_id(0) + 1)):
        record = items + item * WORDS
        query_start = gl.load(record)
        head_index = gl.load(record + 1)
        partial = gl.load(record + 2)
        partial_stop = partial + gl.load(record + 3)
        full_left = gl.load(record + 6)
        words = pattern_words(patterns, gl.load(record + 7 + own), rows, PATTERN_ROWS, scores_layout, KV_TILE)

        # The first tile: nothing to overlap with yet.
        before, before_phase = next_stage(before, before_phase, STAGES)
        query = query_tiles.index(query_buffer * CONSUMERS + CONSUMER)
        mbarrier.wait(query_full.index(query_buffer), query_phase)
        mbarrier.wait(key_full.index(before), before_phase)
        scores = warpgroup_mma(
            query,
            key_tiles.index(before).permute((1, 0)),
            gl.zeros([64, KV_TILE], gl.float32, scores_layout),
            use_acc=False,
            is_async=True,
        )
        scores = warpgroup_mma_wait(0, deps=(scores,))
        barrier_arrive(KEY_FREE + before, threads)
        row_max = gl.full([64], LOWEST_MAX, gl.float32, row_layout)
        weights32, row_max, _ = _weights(scores, row_max, score_scale, tanh_scale, words, True, SOFTMAX, SOFTCAP, dtype)
        row_sum = partial_row_sums(weights32)
        weights = gl.convert_layout(weights32.to(dtype), operand)
        out = gl.zeros([64, HEAD_DIM], gl.float32, out_layout)

        for t in range(partial + 1, partial_stop):
            number = gl.load(partial_pattern + t * NUMBERS + own)
            words = pattern_words(patterns, number, rows, PATTERN_ROWS, scores_layout, KV_TILE)
            stage, phase = next_stage(before, before_phase, STAGES)
            out, weights, row_max, row_sum = _step(
                query, key_tiles, value_tiles, key_full, value_full, stage, phase, before, before_phase,
                out, weights, row_max, row_sum, score_scale, tanh_scale, words,
                True, CONSUMERS, KV_TILE, SOFTMAX, SOFTCAP, scores_layout, out_layout,
            )  # fmt: skip
            before = stage
            before_phase = phase
        for _ in range(full_left):
            stage, phase = next_stage(before, before_phase, STAGES)
            out, weights, row_max, row_sum = _step(
                query, key_tiles, value_tiles, key_full, value_full, stage, phase, before, before_phase,
                out, weights, row_max, row_sum, score_scale, tanh_scale, words,
                False, CONSUMERS, KV_TILE, SOFTMAX, SOFTCAP, scores_layout, out_layout,
            )  # fmt: skip
            before = stage
            before_phase = phase
        mbarrier.arrive(query_free.index(query_buffer), count=1)
        query_buffer, query_phase = next_stage(query_buffer, query_phase, 2)

        # The last tile's output, and the end of the softmax.
        mbarrier.wait(value_full.index(before), before_phase)
        out = warpgroup_mma(weights, value_tiles.index(before), out, is_async=True)
        if SOFTMAX:
            total = gl.convert_layout(gl.sum(row_sum, 1), row_layout)
            keep = gl.full([64], 1.0, gl.float32, row_layout)
            if SINKS:
                # The sink is one more logit: it may raise the maximum, and it adds to the sum, but it has no value.
                sink = gl.load(sinks + head_index % heads) * LOG2_E
                new_max = gl.maximum(row_max, sink)
                keep = gl.exp2(row_max - new_max)
                total = total * keep + gl.exp2(sink - new_max)
                row_max = new_max
            safe = gl.where(total > 0, total, 1.0)
            natural = gl.where(total > 0, (row_max + gl.log2(safe)) * LN_2, float("-inf"))
            lse_row = lse + head_index.to(gl.int64) * q_len + query_start
            gl.store(lse_row + query_row, natural, mask=query_start + query_row < q_len)
            row_scale = gl.convert_layout(keep / safe, out_row_layout)
        out, weights = warpgroup_mma_wait(0, deps=(out, weights))
        barrier_arrive(VALUE_FREE + before, threads)
        out = out * row_scale[:, None] if SOFTMAX else out * out_scale
        tma.store_wait(0)
        partition_barrier()
        out_tile.store(out.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out_tma, [head_index, query_start + CONSUMER * 64, 0], out_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["q_len", "heads"])
def forward_kernel(
    query_tma, key_tma, value_tma, out_tma, lse, sinks, program_items, items, partial_tile, partial_pattern,
    run_start, run_stop, patterns, score_scale, tanh_scale, out_scale, q_len, heads,
    CONSUMERS: gl.constexpr, KV_TILE: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr,
    HEAD_GROUP: gl.constexpr, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, SINKS: gl.constexpr,
):  # fmt: skip
    """Shared memory, barriers, and the split into partitions. See :func:`forward` for the arguments."""
    dtype: gl.constexpr = query_tma.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    barrier_layout: gl.constexpr = mbarrier.MBarrierLayout()
    # Two sets of queries: those of the next item come while this one is worked on.
    query_tiles = gl.allocate_shared_memory(dtype, [2 * CONSUMERS, 64, HEAD_DIM], tile_layout)
    out_tiles = gl.allocate_shared_memory(dtype, [CONSUMERS, 64, HEAD_DIM], tile_layout)
    key_tiles = gl.allocate_shared_memory(dtype, [STAGES, KV_TILE, HEAD_DIM], tile_layout)
    value_tiles = gl.allocate_shared_memory(dtype, [STAGES, KV_TILE, HEAD_DIM], tile_layout)
    query_full = gl.allocate_shared_memory(gl.int64, [2, 1], barrier_layout)
    query_free = gl.allocate_shared_memory(gl.int64, [2, 1], barrier_layout)
    key_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier_layout)
    value_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier_layout)
    for b in gl.static_range(2):
        mbarrier.init(query_full.index(b), count=1)
        mbarrier.init(query_free.index(b), count=CONSUMERS)
    for s in gl.static_range(STAGES):
        mbarrier.init(key_full.index(s), count=1)
        mbarrier.init(value_full.index(s), count=1)
    fence_async_shared()
    gl.static_assert(CONSUMERS == 1 or CONSUMERS == 2 or CONSUMERS == 3)
    # Constants stand in the calls themselves: in a tuple with a name they would become numbers at run time.
    for_consumers = (
        out_tma, lse, sinks, query_tiles, out_tiles, key_tiles, value_tiles, query_full, query_free, key_full,
        value_full, program_items, items, partial_pattern, patterns, score_scale, tanh_scale, out_scale, q_len, heads,
    )  # fmt: skip
    for_producer = (
        query_tma, key_tma, value_tma, query_tiles, key_tiles, value_tiles, query_full, query_free, key_full,
        value_full, program_items, items, partial_tile, run_start, run_stop, heads,
    )  # fmt: skip
    if CONSUMERS == 3:
        gl.warp_specialize([
            (_consumer, (for_consumers, 0, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_consumer, (for_consumers, 1, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_consumer, (for_consumers, 2, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_producer, (for_producer, CONSUMERS, KV_TILE, STAGES, HEAD_GROUP)),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip
    elif CONSUMERS == 2:
        gl.warp_specialize([
            (_consumer, (for_consumers, 0, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_consumer, (for_consumers, 1, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_producer, (for_producer, CONSUMERS, KV_TILE, STAGES, HEAD_GROUP)),
        ], [4, 1], [240, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consumer, (for_consumers, 0, CONSUMERS, KV_TILE, HEAD_DIM, STAGES, SOFTMAX, SOFTCAP, SINKS)),
            (_producer, (for_producer, CONSUMERS, KV_TILE, STAGES, HEAD_GROUP)),
        ], [1], [24])  # fmt: skip


def forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    compiled: CompiledMask,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the kernel: out in the dtype of the inputs, and lse float32 (None for SiLU); see ``Backend.forward``."""
    batch, heads, q_len, head_dim = query.shape
    kv_heads = key.shape[1]
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    softmax = options.activation == "softmax"
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=query.device)
    if out.numel() == 0 or key.shape[2] == 0:
        nothing_visible(out, lse, options.sinks)
        return out, lse if softmax else None
    query, key, value = (tma_ready(tensor) for tensor in (query, key, value))
    query, scale = positive_scale(query, options.scale)
    tiles = (THREE_CONSUMERS,) if three_consumers(compiled, head_dim) else FORWARD_TILES
    work = forward_schedule(compiled, batch, heads, multiprocessors(query.device), tiles=tiles)
    q_tile, kv_tile = work.tile
    score_scale, tanh_scale = score_scales(replace(options, scale=scale))
    forward_kernel[(work.programs,)](
        tile_descriptor(query, 64),
        tile_descriptor(key, kv_tile),
        tile_descriptor(value, kv_tile),
        tile_descriptor(out.view(batch * heads, q_len, head_dim), 64),
        lse,
        lse if options.sinks is None else options.sinks.float().contiguous(),
        *work.arrays(),
        score_scale,
        tanh_scale,
        1.0 / options.normalizer,
        q_len,
        heads,
        CONSUMERS=q_tile // 64,
        KV_TILE=kv_tile,
        HEAD_DIM=padded_head_dim(head_dim),
        STAGES=stages(padded_head_dim(head_dim), kv_tile),
        HEAD_GROUP=heads // kv_heads,
        SOFTMAX=softmax,
        SOFTCAP=options.softcap > 0,
        SINKS=options.sinks is not None,
        num_warps=4,
    )
    return out, lse if softmax else None
