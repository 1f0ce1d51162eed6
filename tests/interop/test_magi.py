"""Target ``magi`` and back: slices are read by a decoder of its own, which also sees that none overlap."""

from __future__ import annotations

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.export import export
from cmask_lab.interop.magi import from_magi, slices
from tests.interop.samples import PER_HEAD, SAMPLES


def cells(q_ranges, k_ranges, types, q_len, kv_len):
    """How many slices hold each cell, from the definition."""
    count = np.zeros((q_len, kv_len), np.int64)
    for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, types, strict=True):
        i, j = np.arange(q0, q1)[:, None], np.arange(k0, k1)
        seen = np.ones((q1 - q0, k1 - k0), np.bool_)
        if kind in (1, 3):
            seen &= j <= i + (k1 - q1)
        if kind in (2, 3):
            seen &= j >= i + (k0 - q0)
        count[q0:q1, k0:k1] += seen
    return count


@pytest.mark.parametrize("name", SAMPLES)
def test_out_and_back(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = {}
    exec(export(mask, "magi", q_len=q_len, kv_len=kv_len, q_start=q_start), scope)
    q_ranges, k_ranges, types = (part.tolist() for part in scope["slices"]())
    want = mask.to_dense(q_len, kv_len, q_start)
    assert np.array_equal(cells(q_ranges, k_ranges, types, q_len, kv_len), want)
    back = from_magi(q_ranges, k_ranges, types, q_len=q_len, kv_len=kv_len)
    assert np.array_equal(back.to_dense(q_len, kv_len), want)


@pytest.mark.parametrize(
    ("mask", "most"),
    [
        (cm.full(), 1),
        (cm.causal(), 1),
        (cm.anticausal(), 1),
        (cm.documents([100, 300, 112]), 3),
        (cm.documents([100, 300, 112]) & cm.causal(), 3),
        (cm.window(63), 2),
        (cm.window(63, 63), 3),
        (cm.sink(4) | cm.window(63), 4),
        (cm.prefix(100) | cm.causal(), 2),
        (cm.grid(8, 8, 8).causal_time(), 8),
    ],
)
def test_few_slices(mask, most):
    assert len(slices(mask.intervals(512))[2]) <= most


def test_random_tables():
    rng = np.random.default_rng(8)
    for _ in range(50):
        dense = rng.random(rng.integers(1, 40, 2)) < rng.random()
        table = cm.from_dense(dense).intervals(*dense.shape)
        assert np.array_equal(cells(*slices(table), *dense.shape), dense)


def test_a_slice_with_more_rows_than_keys():
    """Aligned at the bottom right: the first rows see nothing."""
    mask = from_magi([[0, 5]], [[0, 3]], [1], q_len=5, kv_len=3)
    assert np.array_equal(mask.to_dense(5, 3), np.tri(5, 3, -2, bool))


def test_refusals():
    with pytest.raises(ValueError, match="one mask for the whole call and this one differs by head"):
        export(PER_HEAD, "magi", q_len=50)
    with pytest.raises(ValueError, match="type 4 is unknown"):
        from_magi([[0, 1]], [[0, 1]], [4], q_len=1, kv_len=1)
    with pytest.raises(ValueError, match=r"k_ranges\[0\] is \[0, 9\]; it must lie in \[0, 4\]"):
        from_magi([[0, 1]], [[0, 9]], [0], q_len=1, kv_len=4)
    with pytest.raises(ValueError, match="1 q_ranges, 2 k_ranges and 1 types"):
        from_magi([[0, 1]], [[0, 1], [0, 1]], [0], q_len=1, kv_len=1)


@pytest.mark.parametrize(
    ("ranges", "types", "q_len", "message"),
    [
        ([[0.9, 3]], [1], 3, "q_ranges has shape .* dtype float64; give integers"),
        ([0, 1, 2], None, 3, r"q_ranges has shape \(3,\)"),
        ([[0, 3]], [1.9], 3, "type"),
        ([[0, 3]], [4], 3, "type 4 is unknown"),
        ([[0, 3]], [1], 3.5, "q_len is 3.5"),
    ],
)
def test_what_are_no_slices(ranges, types, q_len, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cm.from_magi(ranges, ranges, types, q_len=q_len, kv_len=3)


def test_no_slices_show_nothing():
    assert not cm.from_magi([], [], [], q_len=2, kv_len=2).to_dense(2).any()
