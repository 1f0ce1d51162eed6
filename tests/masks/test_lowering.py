"""Lowering goes with the intervals: memory at sizes where a dense or an unbounded table would not fit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import cmask_lab.masks as cm
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.masks import Mask
from cmask_lab.masks.combinators import Or, union

LENGTH = 32768
TEXT = cm.rect(q=(0, 512)) | cm.rect(k=(0, 512))


def clear(radius: int) -> Mask:
    return TEXT | cm.grid(168, 192).disk(radius).at(q=(512, LENGTH), k=(512, LENGTH))


def hstu(contextual: int, targets: int) -> Mask:
    history = LENGTH - targets
    return cm.rect(q=(0, contextual), k=(0, history)) | (cm.causal() & cm.rect(k=(0, history))) | cm.band(0, 1)


def shared_prompt(prompt: int, answer: int, answers: int) -> Mask:
    return cm.causal() & (cm.documents([prompt] + [answer] * answers) | cm.prefix(prompt))


def peak_bytes(work: Callable[[], IntervalTable]) -> tuple[IntervalTable, int]:
    tracemalloc.start()
    try:
        table = work()
        return table, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# (mask, visible pairs); the pairs follow from the sums beside them.
KNOWN = {
    "causal": (cm.causal(), LENGTH * (LENGTH + 1) // 2),
    "window": (cm.window(1023), 1024 * LENGTH - 1023 * 1024 // 2),
    "hstu": (hstu(256, 2048), 542_622_592),
    "shared prompt": (shared_prompt(8192, 3072, 8), 8192 * 8193 // 2 + 8 * (3072 * 8192 + 3072 * 3073 // 2)),
    "clear 16": (clear(16), 56_975_456),
    "dilated window": (
        cm.window(4095) & cm.strided(64),
        64 * LENGTH - sum(64 - (row // 64 + 1) for row in range(64 * 63)),
    ),
    "documents seen at a stride": (
        cm.documents([1024] * 32) & cm.strided(32),
        LENGTH * 32,
    ),
    "permuted causal": (
        cm.causal().take(k=np.arange(LENGTH).reshape(128, 256)[:, ::-1].reshape(-1)),
        LENGTH * (LENGTH + 1) // 2,
    ),
    "shuffled full": (
        cm.full().take(q=np.random.default_rng(0).permutation(LENGTH), k=np.random.default_rng(1).permutation(LENGTH)),
        LENGTH**2,
    ),
    "rotated rows of different lengths": (
        cm.explicit(np.arange(LENGTH + 1), np.zeros(LENGTH, int), np.arange(LENGTH) * 7919 % LENGTH + 1).take(
            k=np.roll(np.arange(LENGTH), 99)
        ),
        LENGTH * (LENGTH + 1) // 2,
    ),
    "a chain of nodes": (cm.tree(np.arange(LENGTH) - 1), LENGTH * (LENGTH + 1) // 2),
    "a chain of nodes, the root behind": (
        cm.tree([*range(1, LENGTH), -1]),
        LENGTH * (LENGTH + 1) // 2,
    ),
    "three thousand rectangles": (
        Or.of(*(cm.rect(q=(10 * n, 10 * n + 10), k=(n, n + 7)) for n in range(3000))),
        3000 * 70,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_pairs_and_memory(name: str) -> None:
    mask, pairs = KNOWN[name]
    table, peak = peak_bytes(lambda: mask.intervals(LENGTH))
    assert table.visible_pairs == pairs
    # A boundary is 8 bytes, an interval 16; lowering holds a few copies of the rows and of the result.
    assert peak <= 16 * (24 * LENGTH + 12 * table.count)


def test_a_million_tokens_of_documents() -> None:
    total = 1 << 20
    lengths = np.random.default_rng(3).integers(1, 4096, 511)
    lengths = np.append(lengths, total - lengths.sum())
    mask = cm.causal() & cm.documents(lengths)
    table, peak = peak_bytes(lambda: mask.intervals(total))
    assert table.visible_pairs == int((lengths * (lengths + 1) // 2).sum())
    assert peak < 300e6


def test_one_query_of_a_long_mask_is_cheap() -> None:
    for mask in (clear(16), cm.window(4095) & cm.strided(3), cm.strided(2).take(q=np.arange(LENGTH)[::-1])):
        table, peak = peak_bytes(lambda mask=mask: mask.intervals(1, LENGTH, q_start=20_000))
        assert table == mask.intervals(8, LENGTH, q_start=19_998).take_rows([2])
        assert peak < 3e6


def test_disk_rows_are_joined_where_they_touch() -> None:
    # On rows of 8 a disk of radius 40 covers all of each row that it reaches, 39 up and 39 down.
    table = cm.grid(100, 8).disk(40).intervals(800)
    assert table.row(50 * 8 + 3).tolist() == [[11 * 8, 90 * 8]]
    assert table.row(0).tolist() == [[0, 40 * 8]]
    assert table.row(799).tolist() == [[60 * 8, 800]]


@pytest.mark.parametrize("seed", range(50))
def test_splicing_is_the_union(seed: int) -> None:
    random = np.random.default_rng(seed)
    large = IntervalTable.from_dense(random.random((40, 300)) < random.choice([0.3, 0.5, 0.7]))
    rows = random.integers(0, 40, 12)
    starts = random.integers(0, 300, 12)
    small = IntervalTable.from_intervals(rows, starts, starts + random.integers(1, 40, 12), 40, 300)
    assert small.count * 8 < large.count
    assert union(small, large) == small | large
    assert union(IntervalTable.empty(40, 300), large) == large
