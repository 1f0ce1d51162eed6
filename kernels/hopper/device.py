"""Device functions that the forward and the backward kernel share: named barriers, and patterns applied to scores.

**Named barriers.** A multiprocessor has 16 hardware barriers for each program. Triton takes 0 and 1 and one more for
every worker partition of four warps, from 2 up; the numbers below are free. A consumer that is done with a
shared-memory stage *arrives* (and goes on), the producer warp *syncs* (and waits). An mbarrier could do the same, but
Triton puts a barrier of the whole partition before every ``mbarrier.arrive``; this one costs each warp a single
instruction.

**Patterns.** An accumulator of ``wgmma`` gives one thread, of each of its rows, the columns ``8 k + 2 w + e`` for one
``w`` in 0…3, all ``k``, and ``e`` in 0…1. The schedule stores word ``w`` of a row with exactly these columns in bit
``2 k + e``, so a thread loads one word for each of its rows and no bit has to travel between threads.
"""

from __future__ import annotations

from cmask_lab.kernels import scales
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LOG2_E = gl.constexpr(scales.LOG2_E)
LN_2 = gl.constexpr(scales.LN_2)
KEY_FREE = gl.constexpr(5)
"""First of up to four named barriers: a stage of keys may be filled again. (The backward kernel has its own list.)"""
VALUE_FREE = gl.constexpr(9)
"""First of up to four: a stage of values may be filled again."""


@gluon.jit
def barrier_sync(number, threads: gl.constexpr):
    """Arrive at a named barrier and wait until ``threads`` threads have."""
    gl.inline_asm_elementwise(
        f"bar.sync $1, {threads}; mov.b32 $0, $1;", "=r,r", [gl.to_tensor(number)], gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def barrier_arrive(number, threads: gl.constexpr):
    """Arrive at a named barrier at which ``threads`` threads meet; don't wait."""
    gl.inline_asm_elementwise(
        f"bar.arrive $1, {threads}; mov.b32 $0, $1;", "=r,r", [gl.to_tensor(number)], gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def exact_tanh(x):
    """``tanh`` to about float32's precision: two instructions of the special-function unit."""
    doubled = gl.exp2(x * (2 * LOG2_E))  # e^2x
    reciprocal = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + doubled], gl.float32, is_pure=True, pack=1
    )
    return 1.0 - 2.0 * reciprocal


@gluon.jit
def tanh_of(x, dtype: gl.constexpr):
    """``tanh`` as weights of ``dtype`` need it; for bfloat16 in one instruction, with an absolute error of 2^-11.

    SiLU is made of it: ``silu(x) = h + h tanh(h)`` and ``sigmoid(x) = (1 + tanh(h)) / 2``, where ``h = x / 2``.
    """
    if dtype == gl.bfloat16:
        tanh = gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=True, pack=1)
    else:
        tanh = exact_tanh(x)
    return tanh


@gluon.jit
def weights_and_slope(
    scores, lse, score_scale, tanh_scale, SOFTMAX: gl.constexpr, SOFTCAP: gl.constexpr, dtype: gl.constexpr
):
    """For the backward pass: the weights, and by what a gradient of the weights becomes one of the (scaled) scores.

    For the softmax that factor is the weight itself (the gradient has delta taken off); ``lse`` is in base 2.
    """
    if SOFTCAP:
        scores = exact_tanh(scores * tanh_scale)
    if SOFTMAX:
        weights = gl.exp2(scores * score_scale - lse)
        slope = weights
    else:
        half = scores * score_scale
        tanh = tanh_of(half, dtype)
        sigmoid = 0.5 + 0.5 * tanh
        weights = half + half * tanh
        slope = sigmoid + weights * (1.0 - sigmoid)
    if SOFTCAP:
        slope = slope * (1.0 - scores * scores)
    return weights, slope


@gluon.jit
def pattern_words(
    patterns, number, rows, PATTERN_ROWS: gl.constexpr, scores_layout: gl.constexpr, COLUMNS: gl.constexpr
):
    """The words of ``rows`` of pattern ``number``: int32 ``(64, 4)``, one word for each row that a thread owns."""
    quads: gl.constexpr = gl.reshape(
        gl.zeros([64, COLUMNS], gl.float32, scores_layout), [64, COLUMNS // 8, 4, 2]
    ).type.layout
    words: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, quads))
    row = gl.convert_layout(rows, gl.SliceLayout(1, words))
    word = gl.arange(0, 4, gl.SliceLayout(0, words))
    return gl.load(patterns + ((number * PATTERN_ROWS + row) * 4)[:, None] + word[None, :])


@gluon.jit
def where_visible(values, words, otherwise: gl.constexpr):
    """``values (64, columns)`` where the bit of the cell is set, ``otherwise`` elsewhere; columns start at bit 0."""
    COLUMNS: gl.constexpr = values.shape[1]
    quads = gl.reshape(values, [64, COLUMNS // 8, 4, 2])
    pairs: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, quads.type.layout))
    k = gl.arange(0, COLUMNS // 8, gl.SliceLayout(1, pairs))
    e = gl.arange(0, 2, gl.SliceLayout(0, pairs))
    bit = 1 << (2 * k[:, None] + e[None, :])
    visible = (words[:, None, :, None] & bit[None, :, None, :]) != 0
    chosen = gl.reshape(gl.where(visible, quads, otherwise), [64, COLUMNS])
    return gl.convert_layout(chosen, values.type.layout, assert_trivial=True)


@gluon.jit
def partial_row_sums(values):
    """Row sums as far as one thread can add: float32 ``(64, 8)``, eight partial sums a row, no shuffles."""
    COLUMNS: gl.constexpr = values.shape[1]
    return gl.sum(gl.reshape(values, [64, COLUMNS // 8, 8]), 1)


@gluon.jit
def next_stage(stage, phase, STAGES: gl.constexpr):
    """The stage after ``stage`` of a ring, and the phase its barriers are in."""
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    return stage, phase


@gluon.jit
def tile_lists(record):
    """A work item's lists: partial tiles ``[partial, partial_stop)`` and runs of full tiles ``[run, run_stop)``."""
    partial = gl.load(record + 2)
    partial_stop = partial + gl.load(record + 3)
    run = gl.load(record + 4)
    return partial, partial_stop, run, run + gl.load(record + 5)


@gluon.jit
def next_stretch(partial, partial_stop, run, partial_tile, run_start, run_stop, TILE: gl.constexpr):
    """What comes next of both lists: positions ``[start, stop)`` of a partial tile or of a whole run of full ones."""
    if partial < partial_stop:
        start = gl.load(partial_tile + partial) * TILE
        stop = start + TILE
        partial += 1
    else:
        start = gl.load(run_start + run) * TILE
        stop = gl.load(run_stop + run) * TILE
        run += 1
    return start, stop, partial, run
