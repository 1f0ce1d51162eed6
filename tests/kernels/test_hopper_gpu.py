"""The Hopper kernels on the chip, against float64 within derived bounds (oracle.py), in memory that held NaN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels.hopper import BACKEND

import cmask_lab as cm
from tests.kernels.masks import families
from tests.kernels.oracle import Case, check, compare, dense, run, tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs an sm_90 GPU"
    ),
]
HALF = Case(head_dim=128, value_dim=128, dtype=torch.bfloat16)


@pytest.fixture(autouse=True)
def _memory_that_was_not_written_holds_nan():
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


def case(**changes) -> Case:
    head_dim = changes.get("head_dim", 128)
    return replace(HALF, value_dim=head_dim, **changes)


@pytest.mark.parametrize("head_dim", [64, 128, 80])
@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
def test_every_family(mask, head_dim):
    check(BACKEND, cm.compile(mask, 150, tile=(128, 128)), case(head_dim=head_dim), "cuda")


LONG = {
    "causal": cm.causal(),
    "window": cm.window(300),
    "documents": cm.documents([700, 1, 129, 511, 390]) & cm.causal(),
    "rows without keys": cm.full() - cm.rect(q=(400, 800)),
    "one late key tile": cm.rect(q=(5, 1700), k=(1650, 1731)),
    "checkered": cm.tiles(np.add.outer(np.arange(28), np.arange(28)) % 3 == 0, 64).at(q=(0, 1731), k=(0, 1731)),
    "image": cm.grid(43, 40).disk(7).at(q=(11, 1731), k=(11, 1731)) | cm.rect(k=(0, 11)),
}


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("mask", LONG.values(), ids=LONG.keys())
def test_many_tiles_grouped_heads_odd_lengths(mask, head_dim):
    compiled = cm.compile(mask, 1731, tile=(128, 128))
    check(BACKEND, compiled, case(head_dim=head_dim, batch=2, heads=6, kv_heads=2), "cuda")


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("tile", [(128, 64), (64, 64), (32, 256), (256, 32)], ids=str)
def test_tile_sizes(tile, head_dim):
    compiled = cm.compile(LONG["image"], 1731, tile=tile)
    check(BACKEND, compiled, case(head_dim=head_dim), "cuda")


@pytest.mark.parametrize("head_dim", [8, 64, 72, 128])
def test_three_consumers(head_dim):
    """Rows long enough for them where the head dimension is at most 64."""
    check(BACKEND, cm.compile(cm.causal(), 7001, tile=(128, 128)), case(head_dim=head_dim, heads=1, kv_heads=1), "cuda")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 8, "kv_heads": 1},
        {"scale": -0.3},
        {"scale": 0.0},
        {"softcap": 1.5},
        {"sinks": True, "heads": 4, "kv_heads": 2},
        {"softcap": 3.0, "sinks": True, "grad_lse": False},
        {"activation": "silu", "normalizer": 150.0},
        {"activation": "silu", "normalizer": 20.0, "softcap": 2.0, "heads": 4, "kv_heads": 2},
    ],
    ids=str,
)
def test_options(changes, dtype):
    # SiLU in bfloat16 takes a sigmoid with an error of 2^-12, which the bounds forgive a row of many keys, not of one.
    mask = LONG["checkered" if changes.get("activation") == "silu" else "documents"]
    check(BACKEND, cm.compile(mask, 1731, tile=(128, 128)), case(dtype=dtype, **changes), "cuda")


@pytest.mark.parametrize(
    ("q_len", "kv_len", "q_start"), [(1, 1, 0), (1, 3000, 2999), (129, 4001, 3000), (3001, 65, 0), (128, 128, 0)]
)
def test_lengths(q_len, kv_len, q_start):
    compiled = cm.compile(cm.window(500), q_len, kv_len, q_start=q_start, tile=(128, 128))
    check(BACKEND, compiled, case(), "cuda")


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("changes", [{}, {"sinks": True}, {"activation": "silu"}], ids=str)
def test_nothing_to_do(q_len, kv_len, changes):
    check(BACKEND, cm.compile(cm.full(), q_len, kv_len, tile=(128, 128)), case(**changes), "cuda")


def test_masks_by_batch_and_head():
    one, two, three = cm.causal(), cm.window(100, 30), cm.empty()
    both = cm.per_batch([cm.per_head([one, two, three, one]), cm.per_head([two, two, one, three])])
    for mask in (both, cm.per_head([one, two, three, two]), cm.per_batch([three, two])):
        check(BACKEND, cm.compile(mask, 700, tile=(128, 128)), case(batch=2, heads=4, kv_heads=2), "cuda")


def test_strides():
    compiled = cm.compile(LONG["window"], 1731, tile=(128, 128))
    data = tensors(compiled, case(heads=4, kv_heads=2), "cuda")
    data = replace(data, options=replace(data.options, deterministic=True))
    names = ("q", "k", "v", "grad_out")
    by_position = {name: getattr(data, name).transpose(1, 2).contiguous().transpose(1, 2) for name in names}
    unaligned = {name: torch.cat([t[..., :1], t], -1)[..., 1:] for name in names for t in [getattr(data, name)]}
    wanted = run(BACKEND, compiled, data)
    for moved in (by_position, unaligned):
        for name, value in run(BACKEND, compiled, replace(data, **moved)).items():
            assert torch.equal(value, wanted[name]), name


def test_a_gradient_that_is_one_number_for_all():
    compiled = cm.compile(cm.causal(), 300, tile=(128, 128))
    data = tensors(compiled, case(grad_lse=False), "cuda")
    ones = replace(data, grad_out=torch.ones((), device="cuda", dtype=torch.bfloat16).expand_as(data.grad_out))
    compare(run(BACKEND, compiled, ones), ones, dense(compiled).to("cuda"))


@pytest.mark.parametrize("changes", [{}, {"head_dim": 64, "sinks": True}, {"activation": "silu"}], ids=str)
def test_deterministic_results_are_right_and_the_same_every_time(changes):
    compiled = cm.compile(LONG["image"], 1731, tile=(128, 128))
    data = tensors(compiled, case(heads=6, kv_heads=2, **changes), "cuda")
    data = replace(data, options=replace(data.options, deterministic=True))
    first = run(BACKEND, compiled, data)
    compare(first, data, dense(compiled).to("cuda"))
    for _ in range(10):
        again = run(BACKEND, compiled, data)
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_another_mask_compiles_nothing():
    from cmask_lab.kernels.hopper.backward import backward_kernel, finish_kernel, prepare_kernel
    from cmask_lab.kernels.hopper.forward import forward_kernel

    kernels = (forward_kernel, backward_kernel, prepare_kernel, finish_kernel)

    def compiled_kernels() -> int:
        return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())

    def run_with(mask, length):
        compiled = cm.compile(mask, length, tile=(128, 128))
        run(BACKEND, compiled, tensors(compiled, case(), "cuda"))

    run_with(cm.causal(), 1731)
    before = compiled_kernels()
    for mask in (cm.empty(), cm.full(), cm.window(3), cm.strided(5), cm.documents([1] * 1731)):
        run_with(mask, 1731)
    for length in (1, 16, 128, 999, 1024, 2048):
        run_with(cm.causal(), length)
    assert compiled_kernels() == before


def test_more_than_two_to_the_31_elements():
    length, heads, dim = 1 << 17, 130, 128
    compiled = cm.compile(cm.window(40), length, tile=(128, 128)).to("cuda")
    options = tensors(cm.compile(cm.window(40), 1), case()).options
    torch.use_deterministic_algorithms(False)  # filling this much memory takes longer than the kernels
    q, k, v = (torch.randn(1, heads, length, dim, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    assert q.numel() > 2**31
    out, lse = BACKEND.forward(q, k, v, compiled, options)
    grads = BACKEND.backward(out, None, q, k, v, out, lse, compiled, options)
    last = (slice(None), slice(heads - 1, heads), slice(length - 300, length))
    end = cm.compile(cm.window(40), 300, tile=(128, 128)).to("cuda")
    q, k, v, own_out, own_lse = (tensor[last].contiguous() for tensor in (q, k, v, out, lse))
    wanted, wanted_lse = BACKEND.forward(q, k, v, end, options)
    wanted_grads = BACKEND.backward(own_out, None, q, k, v, own_out, own_lse, end, options)
    # The first 40 rows of the piece see keys that the piece does not have; the last keys are seen by all they should.
    assert torch.allclose(own_out[:, :, 40:].float(), wanted[:, :, 40:].float(), rtol=2**-7, atol=2**-9)
    assert torch.allclose(own_lse[:, :, 40:], wanted_lse[:, :, 40:], rtol=1e-5, atol=1e-5)
    for whole, piece in zip(grads[:3], wanted_grads[:3], strict=True):
        assert torch.allclose(whole[last][:, :, 80:].float(), piece[:, :, 80:].float(), rtol=2**-6, atol=2**-7)
