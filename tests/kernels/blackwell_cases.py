"""The Blackwell forward kernel in Triton's interpreter; run by test_blackwell.py in a process of its own."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from cmask_lab.kernels.blackwell import BACKEND

import cmask_lab as cm
from tests.kernels.masks import families
from tests.kernels.oracle import Case, dense, expected, tensors

HALF = Case(heads=1, kv_heads=1, head_dim=64, value_dim=64, dtype=torch.float16)


@pytest.fixture(autouse=True)
def _numpy_says_nothing_about_infinities():
    """The interpreter's NumPy warns of exp2 of -inf minus the lowest maximum, which is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        yield


def check(compiled: cm.CompiledMask, case: Case) -> None:
    data = tensors(compiled, case)
    torch.use_deterministic_algorithms(True)  # fills memory that is not written with NaN
    try:
        out, lse = BACKEND.forward(data.q, data.k, data.v, compiled.to("cpu"), data.options)
    finally:
        torch.use_deterministic_algorithms(False)
    results, limit = expected(data, dense(compiled))
    for name, got in (("out", out.double()), ("lse", lse.double())):
        finite = torch.isfinite(results[name])
        assert torch.equal(got[~finite], results[name][~finite]), name
        assert ((got - results[name]).abs()[finite] <= limit[name][finite]).all(), name


@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
def test_every_family(mask):
    check(cm.compile(mask, 150, tile=(128, 64)), HALF)


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 4, "kv_heads": 2, "batch": 2},
        {"head_dim": 80, "value_dim": 80},
        {"scale": -0.3},
        {"scale": 0.0},
    ],
    ids=str,
)
def test_shapes_and_scales(changes):
    check(cm.compile(families()["rows without keys"], 150, tile=(128, 128)), replace(HALF, **changes))


@pytest.mark.parametrize(("q_len", "kv_len", "q_start"), [(1, 300, 299), (129, 200, 30), (0, 5, 0), (5, 0, 0)])
def test_lengths(q_len, kv_len, q_start):
    check(cm.compile(cm.window(90), q_len, kv_len, q_start=q_start, tile=(128, 64)), HALF)


def test_masks_by_batch_and_head():
    one, two, three = cm.causal(), cm.window(5, 30), cm.empty()
    mask = cm.per_batch([cm.per_head([one, two]), cm.per_head([three, one])])
    check(cm.compile(mask, 140, tile=(128, 128)), replace(HALF, batch=2, heads=2, kv_heads=1))


def test_strides():
    compiled = cm.compile(cm.causal(), 140, tile=(128, 128))
    data = tensors(compiled, HALF)
    plain, _ = BACKEND.forward(data.q, data.k, data.v, compiled.to("cpu"), data.options)
    moved = [t.transpose(1, 2).contiguous().transpose(1, 2).mT.contiguous().mT for t in (data.q, data.k, data.v)]
    strided, _ = BACKEND.forward(*moved, compiled.to("cpu"), data.options)
    assert torch.equal(plain, strided)
