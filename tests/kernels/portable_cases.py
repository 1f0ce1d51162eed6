"""What the Triton kernels are checked with, by test_portable.py in the interpreter, by test_portable_gpu.py on a GPU.

Triton decides when it is imported whether kernels run in its interpreter, so the former happens in a process of its
own.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import torch
from cmask_lab.kernels.portable import BACKEND
from cmask_lab.kernels.portable.backend import Portable
from cmask_lab.kernels.portable.blocks import Blocks
from cmask_lab.kernels.row_gather import gather_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from tests.kernels.masks import compositions, families
from tests.kernels.oracle import Case, check, compare, dense, run, tensors

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# The interpreter computes with NumPy, which has no bfloat16; and it is slow: float32 is left to the tests of one dtype.
DTYPES = [torch.float16] if INTERPRETED else [torch.float16, torch.bfloat16, torch.float32]


@pytest.fixture(autouse=True)
def _numpy_says_nothing_about_infinities():
    """The interpreter's NumPy warns of log2(0) and of exp2 beyond range, both of which are meant."""
    with warnings.catch_warnings():
        if INTERPRETED:
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        yield


@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
def test_every_family(mask):
    check(BACKEND, cm.compile(mask, 150, tile=(64, 64)), Case(dtype=torch.float32, heads=1, kv_heads=1), DEVICE)


@pytest.mark.parametrize("tile", [(32, 32), (128, 32), (32, 128), (128, 128), (256, 64)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tile_sizes(tile, dtype):
    mask = families()["sink"]
    check(BACKEND, cm.compile(mask, 150, tile=tile), Case(dtype=dtype, heads=1, kv_heads=1), DEVICE)


@pytest.mark.parametrize(
    "dims", [(16, 16), (64, 64), (80, 80), (96, 64), (128, 128), (128, 256), (256, 256), (20, 7)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_head_dims(dims, dtype):
    case = Case(heads=1, kv_heads=1, head_dim=dims[0], value_dim=dims[1], dtype=dtype)
    check(BACKEND, cm.compile(cm.causal(), 100, tile=(64, 64)), case, DEVICE)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(heads=4, kv_heads=2),
        Case(heads=3, kv_heads=1, batch=2),
        Case(scale=1.5),
        Case(scale=-0.3),
        Case(scale=0.0),
        Case(softcap=1.5),
        Case(sinks=True, heads=4, kv_heads=2),
        Case(softcap=3.0, sinks=True, grad_lse=False),
        Case(activation="silu", normalizer=150.0),
        Case(activation="silu", normalizer=20.0, softcap=2.0, heads=4, kv_heads=2),
    ],
    ids=str,
)
def test_options(case, dtype):
    mask = families()["rows without keys"]
    check(BACKEND, cm.compile(mask, 150, tile=(64, 64)), Case(**{**vars(case), "dtype": dtype}), DEVICE)


@pytest.mark.parametrize(
    ("q_len", "kv_len", "q_start"), [(1, 150, 149), (65, 200, 100), (150, 64, 0), (1, 1, 0), (129, 33, 5)]
)
def test_lengths(q_len, kv_len, q_start):
    compiled = cm.compile(cm.window(70), q_len, kv_len, q_start=q_start, tile=(64, 32))
    check(BACKEND, compiled, Case(sinks=True, head_dim=32), DEVICE)


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("case", [Case(), Case(sinks=True), Case(activation="silu")], ids=["plain", "sinks", "silu"])
def test_nothing_to_do(q_len, kv_len, case):
    check(BACKEND, cm.compile(cm.full(), q_len, kv_len, tile=(64, 64)), case, DEVICE)


def test_no_batch_entries():
    check(BACKEND, cm.compile(cm.full(), 10, tile=(64, 64)), Case(batch=0), DEVICE)


@pytest.mark.parametrize(
    "case", [Case(batch=2, heads=4, kv_heads=2), Case(batch=2, heads=4, kv_heads=4, sinks=True)], ids=str
)
def test_masks_by_batch_and_head(case):
    one, two, three = cm.causal(), cm.window(5, 30), cm.empty()
    both = cm.per_batch([cm.per_head([one, two, three, one]), cm.per_head([two, two, one, three])])
    others = () if INTERPRETED else (cm.per_head([one, two, three, two]), cm.per_batch([three, two]))
    for mask in (both, *others):
        check(BACKEND, cm.compile(mask, 70, tile=(64, 64)), case, DEVICE)


@settings(max_examples=6 if INTERPRETED else 100)
@given(
    mask=compositions(),
    q_len=st.integers(1, 150),
    kv_len=st.integers(1, 150),
    tile=st.sampled_from([(64, 64), (32, 64)]),
)
def test_compositions(mask, q_len, kv_len, tile):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        compiled = cm.compile(mask, q_len, max(kv_len, mask.extent[1] or 0), tile=tile)
        check(BACKEND, compiled, Case(heads=1, kv_heads=1, dtype=torch.float16), DEVICE)


def test_strides():
    compiled = cm.compile(cm.causal(), 100, tile=(64, 64))
    data = tensors(compiled, Case(heads=2, kv_heads=1, head_dim=32, value_dim=16, dtype=torch.float16), DEVICE)
    wanted = run(BACKEND, compiled, data)
    by_position = {
        name: getattr(data, name).transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k", "v", "grad_out")
    }
    column_first = {name: getattr(data, name).mT.contiguous().mT for name in by_position}
    wide = {
        name: torch.cat([getattr(data, name)] * 2, -1)[..., 1 : 1 + getattr(data, name).shape[-1]]
        for name in by_position
    }
    for strided in (by_position, column_first, wide):
        moved = type(data)(**{**vars(data), **strided})
        check_against = (
            wanted
            if strided is not wide
            else run(BACKEND, compiled, type(data)(**{**vars(data), **{n: t.contiguous() for n, t in wide.items()}}))
        )
        for name, value in run(BACKEND, compiled, moved).items():
            assert torch.equal(value, check_against[name]), name


def test_a_gradient_that_is_one_number_for_all():
    compiled = cm.compile(cm.causal(), 70, tile=(64, 64))
    data = tensors(compiled, Case(grad_lse=False), DEVICE)
    ones = type(data)(**{**vars(data), "grad_out": torch.ones((), device=DEVICE).expand_as(data.grad_out)})
    compare(run(BACKEND, compiled, ones), ones, dense(compiled).to(DEVICE))


def test_every_element_of_the_results_is_written():
    """Memory that was not written would hold NaN here."""
    compiled = cm.compile(families()["rows without keys"], 150, tile=(64, 64))
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        check(BACKEND, compiled, Case(sinks=True, head_dim=24, value_dim=40), DEVICE)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(INTERPRETED, reason="programs of the interpreter run one after another")
def test_equal_bits_every_time():
    compiled = cm.compile(families()["grid"], 150, tile=(64, 64))
    data = tensors(compiled, Case(dtype=torch.float16, heads=4, kv_heads=2, sinks=True), DEVICE)
    first, second = run(BACKEND, compiled, data), run(BACKEND, compiled, data)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("order", [np.random.default_rng(0).permutation(100)], ids=["shuffled"])
def test_block_shapes_given(order):
    """Steps smaller than the tile in either direction."""
    blocks = dict.fromkeys(("forward", "backward_keys", "backward_queries"), Blocks(32, 32, 4, 1))
    mask = cm.causal().take(q=order.tolist(), k=order.tolist())
    check(Portable(blocks), cm.compile(mask, 100, tile=(64, 128)), Case(heads=1, kv_heads=1), DEVICE)


def test_another_mask_compiles_nothing():
    if INTERPRETED:
        pytest.skip("the interpreter does not compile")
    from cmask_lab.kernels.portable.backward import attention_backward_keys, attention_backward_queries
    from cmask_lab.kernels.portable.forward import attention_forward

    kernels = (attention_forward, attention_backward_keys, attention_backward_queries)

    def compiled_kernels() -> int:
        return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())

    case = Case(dtype=torch.bfloat16, head_dim=64, value_dim=64)
    first = cm.compile(cm.causal(), 512, tile=(64, 64))
    run(BACKEND, first, tensors(first, case, DEVICE))
    before = compiled_kernels()
    for mask in (cm.empty(), cm.full(), cm.window(3), cm.strided(5), cm.documents([1] * 512)):
        other = cm.compile(mask, 512, tile=(64, 64))
        run(BACKEND, other, tensors(other, case, DEVICE))
    assert compiled_kernels() == before


def test_more_than_two_to_the_31_elements():
    if INTERPRETED:
        pytest.skip("needs the memory of a GPU")
    length, heads, dim = 1 << 17, 130, 128
    compiled = cm.compile(cm.window(40), length, tile=(128, 128))
    q, k, v = (torch.randn(1, heads, length, dim, dtype=torch.bfloat16, device=DEVICE) for _ in range(3))
    assert q.numel() > 2**31
    data = tensors(cm.compile(cm.window(40), 1), Case(), DEVICE)
    out, lse = BACKEND.forward(q, k, v, compiled.to(DEVICE), data.options)
    grads = BACKEND.backward(out, None, q, k, v, out, lse, compiled.to(DEVICE), data.options)
    last = (slice(None), slice(heads - 1, heads), slice(length - 300, length))
    end = cm.compile(cm.window(40), 300, tile=(128, 128)).to(DEVICE)
    q, k, v = (tensor[last].contiguous() for tensor in (q, k, v))
    wanted, wanted_lse = BACKEND.forward(q, k, v, end, data.options)
    wanted_grads = BACKEND.backward(
        out[last].contiguous(), None, q, k, v, out[last].contiguous(), lse[last].contiguous(), end, data.options
    )
    # The first 40 rows of the piece see keys that it does not have; the last 40 keys are seen by all they should be.
    assert torch.allclose(out[last][:, :, 40:].float(), wanted[:, :, 40:].float(), rtol=2**-7, atol=2**-9)
    assert torch.allclose(lse[last][:, :, 40:], wanted_lse[:, :, 40:], rtol=1e-5, atol=1e-5)
    for whole, piece in zip(grads[:3], wanted_grads[:3], strict=True):
        assert torch.allclose(whole[last][:, :, 80:].float(), piece[:, :, 80:].float(), rtol=2**-6, atol=2**-7)


@pytest.mark.parametrize("positions", [1, 37, 200])
def test_rows_in_another_order(positions):
    torch.manual_seed(0)
    wide = torch.randn(2, positions, 3, 88, device=DEVICE)
    tensors = [
        wide.transpose(1, 2)[..., :80],  # heads and positions swapped, rows apart
        torch.randn(2, 1, positions, 64, device=DEVICE).half(),
        torch.randn(1, 1, positions, 1, device=DEVICE),
    ]
    order = torch.randperm(positions, device=DEVICE).int()
    for moved, tensor in zip(gather_rows(tensors, order), tensors, strict=True):
        assert torch.equal(moved, tensor.index_select(2, order))
