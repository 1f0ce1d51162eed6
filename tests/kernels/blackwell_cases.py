"""What the Blackwell kernels are checked with, by test_blackwell.py in the interpreter, by test_blackwell_gpu.py on the
chip.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import pytest
import torch
from cmask_lab.kernels.blackwell import BACKEND, TILES
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from tests.kernels import oracle
from tests.kernels.masks import compositions, families
from tests.kernels.oracle import Case, compare, dense, run, tensors

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# The interpreter computes with NumPy, which has no bfloat16.
DTYPES = [torch.float16] if INTERPRETED else [torch.float16, torch.bfloat16]
HALF = Case(heads=1, kv_heads=1, head_dim=64, value_dim=64, dtype=torch.float16)


@pytest.fixture(autouse=True)
def _numpy_says_nothing_about_infinities():
    """The interpreter's NumPy warns of exp2 of -inf minus the lowest maximum, which is meant."""
    with warnings.catch_warnings():
        if INTERPRETED:
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        yield


def check(compiled: cm.CompiledMask, case: Case) -> None:
    """Results and gradients are within their bounds, and all of them are written: memory that isn't holds NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        oracle.check(BACKEND, compiled, case, DEVICE)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
def test_every_family(mask):
    check(cm.compile(mask, 150, tile=(128, 64)), HALF)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", ["causal", "window", "documents", "grid", "random"])
def test_tiles_and_head_dims(name, tile, head_dim, dtype):
    case = replace(HALF, head_dim=head_dim, value_dim=head_dim, dtype=dtype)
    check(cm.compile(families()[name], 150, tile=tile), case)


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 4, "kv_heads": 2, "batch": 2},
        {"head_dim": 80, "value_dim": 80},
        {"scale": -0.3},
        {"scale": 0.0},
        {"grad_lse": False},
    ],
    ids=str,
)
def test_shapes_and_scales(changes):
    check(cm.compile(families()["rows without keys"], 150, tile=(128, 128)), replace(HALF, **changes))


@pytest.mark.parametrize(
    ("q_len", "kv_len", "q_start"), [(1, 300, 299), (129, 200, 30), (300, 700, 150), (0, 5, 0), (5, 0, 0)]
)
def test_lengths(q_len, kv_len, q_start):
    check(cm.compile(cm.window(90), q_len, kv_len, q_start=q_start, tile=(128, 64)), HALF)


@settings(max_examples=6 if INTERPRETED else 100)
@given(mask=compositions(), q_len=st.integers(1, 300), kv_len=st.integers(1, 300), tile=st.sampled_from(TILES))
def test_compositions(mask, q_len, kv_len, tile):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        check(cm.compile(mask, q_len, max(kv_len, mask.extent[1] or 0), tile=tile), HALF)


def test_masks_by_batch_and_head():
    one, two, three = cm.causal(), cm.window(5, 30), cm.empty()
    mask = cm.per_batch([cm.per_head([one, two]), cm.per_head([three, one])])
    check(cm.compile(mask, 140, tile=(128, 128)), replace(HALF, batch=2, heads=2, kv_heads=1))


def test_strides():
    compiled = cm.compile(cm.causal(), 140, tile=(128, 128))
    data = tensors(compiled, HALF, DEVICE)
    plain = run(BACKEND, compiled, data)
    by_position = {
        name: getattr(data, name).transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k", "v", "grad_out")
    }
    column_first = {name: getattr(data, name).mT.contiguous().mT for name in by_position}
    for moved in (by_position, column_first):
        strided = run(BACKEND, compiled, replace(data, **moved))
        for name, wanted in plain.items():
            assert torch.equal(strided[name], wanted), name


def test_a_gradient_that_is_one_number_for_all():
    compiled = cm.compile(cm.causal(), 140, tile=(128, 64))
    data = tensors(compiled, replace(HALF, grad_lse=False), DEVICE)
    ones = replace(data, grad_out=torch.ones((), dtype=torch.float16, device=DEVICE).expand_as(data.grad_out))
    compare(run(BACKEND, compiled, ones), ones, dense(compiled).to(DEVICE))


@pytest.mark.skipif(INTERPRETED, reason="programs of the interpreter run one after another")
def test_equal_bits_every_time():
    compiled = cm.compile(families()["grid"], 150, tile=(128, 64))
    data = tensors(compiled, replace(HALF, heads=4, kv_heads=2), DEVICE)
    first, second = run(BACKEND, compiled, data), run(BACKEND, compiled, data)
    assert all(torch.equal(first[name], second[name]) for name in first)
