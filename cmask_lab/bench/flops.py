"""Operations, bytes and the floor: how long a call must take on this device, whoever wrote the kernel.

Operations are counted on visible pairs. A kernel that visits hidden pairs too is not given credit for them; how fast it
goes through the pairs that it visits is another column.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

FORWARD, BACKWARD = "forward", "backward"
DIRECTIONS = (FORWARD, BACKWARD)

PASSES = {FORWARD: 4, BACKWARD: 10}
"""Floating-point operations a pair and head dimension: two products forward, five backward, two operations each."""


def attention_flops(pairs: int, head_dim: int, direction: str) -> float:
    """Operations of one pass over so many (query, key, head, batch) pairs.

    >>> attention_flops(10, 64, "forward"), attention_flops(10, 64, "backward")
    (2560.0, 6400.0)
    """
    if direction not in PASSES:
        raise ValueError(f"direction: {direction!r} is not one of {', '.join(map(repr, PASSES))}")
    return float(PASSES[direction] * pairs * head_dim)


def tflops(pairs: int, head_dim: int, direction: str, ms: float) -> float:
    """TFLOP/s of a pass over so many pairs in so many milliseconds.

    >>> tflops(10**9, 128, "forward", 1.0)
    512.0
    """
    return attention_flops(pairs, head_dim, direction) / ms / 1e9


def attention_bytes(
    batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int, head_dim: int, itemsize: int, direction: str
) -> int:
    """The fewest bytes that a pass moves: every input read once, every output written once.

    Forward reads q, k, v and writes out and lse; backward reads those and the gradient of out, and writes the three
    gradients.

    >>> attention_bytes(1, 1, 1, 4, 4, 8, 2, "forward") == 4 * (4 * 8 * 2) + 4 * 4
    True
    """
    queries, keys = batch * heads * q_len, batch * kv_heads * kv_len
    q_sized, kv_sized = (2, 2) if direction == FORWARD else (4, 4)
    return (q_sized * queries + kv_sized * keys) * head_dim * itemsize + 4 * queries


@dataclass(frozen=True)
class Rates:
    """What the device reached in this very run.

    Attributes:
        matrix_tflops: a large matrix product in the dtype of the benchmark, on random data.
        bandwidth_gbs: a large copy, counting bytes read and written, in GB/s.
    """

    matrix_tflops: float
    bandwidth_gbs: float


def floor_ms(flops: float, moved_bytes: int, rates: Rates) -> float:
    """The time that nobody runs below: the larger of arithmetic and traffic.

    >>> floor_ms(790e9, 10, Rates(matrix_tflops=790.0, bandwidth_gbs=4000.0))
    1.0
    """
    return max(flops / (rates.matrix_tflops * 1e9), moved_bytes / (rates.bandwidth_gbs * 1e6))


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Matrix rate and bandwidth of a device (about 0.2 s in all).

    Of some repetitions the median on a GPU, whose clock is highest in the first ones; on a CPU the best, since all that
    makes the others slower is that somebody else had the core.
    """
    import torch

    cuda = device.type == "cuda"
    side = 8192 if cuda else 1024
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product_ms = _elapsed_ms(lambda: torch.mm(a, b), device, repeats=15 if cuda else 10)
    source = torch.empty(2**30 if cuda else 2**26, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    copy_ms = _elapsed_ms(lambda: target.copy_(source), device, repeats=9 if cuda else 5)
    return Rates(2 * side**3 / product_ms / 1e9, 2 * source.numel() / copy_ms / 1e6)


def _elapsed_ms(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    import torch

    times = []
    for number in range(repeats + 2):
        if device.type == "cuda":
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            stop.record()
            torch.cuda.synchronize(device)
            elapsed = start.elapsed_time(stop)
        else:
            began = time.perf_counter()
            call()
            elapsed = (time.perf_counter() - began) * 1e3
        if number >= 2:  # the first two load libraries and raise the clocks
            times.append(elapsed)
    return float(np.median(times) if device.type == "cuda" else min(times))
