"""How long a new mask takes to compile, beside PyTorch's ``create_block_mask``, both on this machine's CPU.

``create_block_mask`` (eager) evaluates the predicate on every cell, so its time and memory go with N²; where it would
not fit into half of the memory that is free it is not run, and the table says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import cmask_lab as cm
from cmask_lab.bench.subjects import subjects

TILE = (128, 128)
COMPARING_BYTES, COMPUTING_BYTES = 10, 64
"""Peak memory of eager ``create_block_mask`` a cell: 10 bytes (10 GB at 32,768², measured with PyTorch 2.11) where the
predicate only compares positions; where it computes with them, every intermediate result is one more int64 a cell."""


@dataclass(frozen=True)
class CompileTime:
    """Times of one mask in milliseconds: (lower quartile, median, upper quartile) of ``samples`` calls after a warm-up.

    Attributes:
        name, seq_len: the mask and its length.
        intervals: size of the interval table.
        ours: ``cm.compile`` from the mask to the descriptor.
        block_mask: ``create_block_mask``; None where it was not run, and then ``why_not`` says why.
        samples: timed calls of ``cm.compile``; ``create_block_mask`` is timed three times.
    """

    name: str
    seq_len: int
    intervals: int
    ours: tuple[float, float, float]
    block_mask: tuple[float, float, float] | None
    why_not: str
    samples: int

    @property
    def ratio(self) -> float | None:
        """Median of ``create_block_mask`` over ours."""
        return None if self.block_mask is None else self.block_mask[1] / self.ours[1]

    def row(self) -> str:
        """One line of the table.

        >>> CompileTime("causal", 8, 8, (1.0, 2.0, 3.0), (80.0, 100.0, 120.0), "", 9).row()
        'causal                       8          8       2.00 (1.00–3.00)              100 ms     50×'
        """
        low, median, high = self.ours
        other = self.why_not if self.block_mask is None else f"{self.block_mask[1]:.0f} ms  {self.ratio:5.0f}×"
        spread = f"{median:.2f} ({low:.2f}–{high:.2f})"
        return f"{self.name:<22}{self.seq_len:>8}{self.intervals:>11}{spread:>23}{other:>28}"


HEADER = f"{'mask':<22}{'tokens':>8}{'intervals':>11}{'cm.compile, ms':>23}{'create_block_mask':>28}"


def compile_times(seq_len: int = 32768, samples: int = 15) -> Iterator[CompileTime]:
    """Measure the masks of the paper suite at one length; yields each as it is done.

    >>> first = next(compile_times(512, samples=3))
    >>> first.name, first.seq_len, first.ours[1] > 0
    ('causal', 512, True)
    """
    for subject in subjects("paper", seq_len):
        if subject.head_dim != 128:
            continue  # the same mask again: a compiled mask knows no head dimension
        compiled = cm.compile(subject.mask, seq_len, tile=TILE)
        ours = _quartiles(lambda mask=subject.mask: cm.compile(mask, seq_len, tile=TILE), samples)
        per_cell = COMPARING_BYTES if subject.native else COMPUTING_BYTES
        needed, free = per_cell * seq_len**2, _free_bytes() // 2
        block_mask, why_not = None, ""
        if subject.predicate is None:
            why_not = "no predicate for it"
        elif needed > free:
            why_not = f"needs {needed / 1e9:.0f} GB"
        else:
            predicate = subject.predicate(torch.device("cpu"), None)
            block_mask = _quartiles(lambda predicate=predicate: _create_block_mask(predicate, seq_len), 3)
        yield CompileTime(subject.name, seq_len, compiled.intervals.count, ours, block_mask, why_not, samples)


def _create_block_mask(predicate: Callable[..., torch.Tensor], seq_len: int) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    create_block_mask(predicate, None, None, seq_len, seq_len, device="cpu", BLOCK_SIZE=TILE[0])


def _quartiles(call: Callable[[], object], samples: int) -> tuple[float, float, float]:
    call()
    times = []
    for _ in range(samples):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, median, high


def _free_bytes() -> int:
    """Memory that the operating system could give a program; 0 where it does not say."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
