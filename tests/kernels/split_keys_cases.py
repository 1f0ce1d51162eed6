"""Few queries against many keys, run by test_split_keys.py in the interpreter, by test_split_keys_gpu.py on a GPU.

The plain forward kernel and the one that splits the keys get the same cases, and both have to be within the oracle's
bounds.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from cmask_lab.kernels.portable import split_keys
from cmask_lab.kernels.portable.backend import Portable
from cmask_lab.kernels.portable.blocks import Blocks
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from tests.kernels.masks import compositions
from tests.kernels.oracle import Case, check, check_forward, tensors
from tests.kernels.portable_cases import (
    DEVICE,
    DTYPES,
    INTERPRETED,
    _numpy_says_nothing_about_infinities,  # noqa: F401
)

PLAIN = Portable(shares=1)
KEYS = 389
"""Not a multiple of anything; queries end with the last key."""


def both(compiled: cm.CompiledMask, case: Case, shares: int) -> None:
    check_forward((PLAIN, Portable(shares=shares)), compiled, case, DEVICE)


def last(mask, q_len: int, tile=(64, 32), keys: int = KEYS) -> cm.CompiledMask:
    return cm.compile(mask, q_len, keys, q_start=keys - q_len, tile=tile)


def far_apart() -> np.ndarray:
    """Each query sees other keys: 0 the first ones, 1 the last ones, 2 nothing, 3 all."""
    cells = np.zeros((KEYS, KEYS), bool)
    cells[-4, :70] = cells[-3, -70:] = cells[-1] = True
    return cells


def scattered() -> np.ndarray:
    """Runs of one tile of 32 keys, and none of two: as many as there can be."""
    return np.tile(np.repeat(np.arange(-(-KEYS // 32)) % 2 == 0, 32)[:KEYS], (KEYS, 1))


def speculated(nodes: int) -> cm.Mask:
    """A tree of drafted tokens behind a prompt that all of them see."""
    parents = [-1, *((node - 1) // 2 for node in range(1, nodes))]
    first = KEYS - nodes
    return cm.rect(k=(0, first)) | cm.tree(parents).at(q=(first, KEYS), k=(first, KEYS))


MASKS = {
    "causal": (cm.causal(), 1),
    "causal, several queries": (cm.causal(), 5),
    "window": (cm.window(100), 16),
    "sink and window": (cm.sink(40) | cm.window(70), 3),
    "documents": (cm.documents([150, 60, 179]) & cm.causal(), 8),
    "tree": (speculated(13), 13),
    "strided": (cm.strided(3) & cm.causal(), 4),
    "far apart": (cm.from_dense(far_apart()), 4),
    "scattered": (cm.from_dense(scattered()), 2),
    "rows without keys": (cm.full() - cm.rect(q=(KEYS - 6, KEYS - 3)), 8),
    "empty": (cm.empty(), 4),
}


@pytest.mark.parametrize("shares", [3, 40])
@pytest.mark.parametrize("name", MASKS)
def test_every_mask(name, shares):
    """40 are more shares than there are tiles."""
    both(last(*MASKS[name]), Case(heads=2, kv_heads=1), shares)


@pytest.mark.parametrize("shares", range(2, 8))
def test_shares_end_anywhere_in_a_run(shares):
    """Also within a tile, since a step is smaller."""
    compiled = last(cm.causal(), 3, tile=(32, 128), keys=1000)
    assert (compiled.descriptor.run_stop - compiled.descriptor.run_start).tolist() == [7]
    blocks = {"split_keys": Blocks(16, 32, 4, 1)}
    check_forward((Portable(blocks, shares=shares),), compiled, Case(heads=1, kv_heads=1), DEVICE)


@pytest.mark.parametrize("tile", [(32, 32), (64, 64), (128, 128), (32, 256)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tile_sizes(tile, dtype):
    both(last(cm.sink(40) | cm.window(150), 7, tile), Case(dtype=dtype), 3)


@pytest.mark.parametrize("dims", [(16, 16), (80, 80), (64, 128), (128, 64), (256, 256), (20, 7)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_head_dims(dims, dtype):
    both(last(cm.causal(), 3), Case(heads=3, kv_heads=1, head_dim=dims[0], value_dim=dims[1], dtype=dtype), 4)


@pytest.mark.parametrize("dtype", [*DTYPES, *([torch.float32] if INTERPRETED else [])], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(scale=1.5),
        Case(scale=-0.3),
        Case(scale=0.0),
        Case(softcap=1.5),
        Case(sinks=True),
        Case(softcap=3.0, sinks=True),
        Case(activation="silu", normalizer=150.0),
        Case(activation="silu", normalizer=20.0, softcap=2.0),
    ],
    ids=str,
)
def test_options(case, dtype):
    both(last(*MASKS["rows without keys"]), replace(case, heads=6, kv_heads=2, batch=2, dtype=dtype), 3)


@pytest.mark.parametrize("q_len", [1, 2, 3, 16, 17, 40, 150])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (5, 1), (8, 2), (80, 1)])
def test_rows_of_a_program(q_len, heads, kv_heads):
    """From one query of one head to more queries, and more heads, than one program takes."""
    if INTERPRETED and heads * q_len > 130:
        pytest.skip("takes the interpreter too long")
    both(last(cm.window(90), q_len, keys=200), Case(heads=heads, kv_heads=kv_heads, sinks=True), 2)


@pytest.mark.parametrize(("heads_of_masks", "packed"), [((0, 0, 1, 1), 2), ((0, 1, 0, 1), 1), ((2, 2, 0, 0), 2)])
def test_heads_with_one_mask_share_a_program(heads_of_masks, packed):
    choices = (cm.causal(), cm.window(60), cm.empty())
    mask = cm.per_head([choices[number] for number in heads_of_masks])
    compiled, case = last(mask, 3), Case(heads=4, kv_heads=2, batch=2, sinks=True)
    data = tensors(compiled, case)
    assert Portable().split(data.q, data.k, data.v, compiled).heads == packed
    both(compiled, case, 3)


def test_masks_by_batch():
    mask = cm.per_batch([cm.causal(), cm.documents([200, 189]), cm.empty()])
    both(last(mask, 2), Case(heads=4, kv_heads=1, batch=3), 3)


@settings(max_examples=15 if INTERPRETED else 200)
@given(
    mask=compositions(),
    q_len=st.integers(1, 16),
    q_start=st.integers(0, 150),
    kv_len=st.integers(1, 300),
    tile=st.sampled_from([(32, 32), (64, 64), (32, 128)]),
    heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
    shares=st.integers(2, 12),
)
def test_compositions(mask, q_len, q_start, kv_len, tile, heads, shares):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        keys = max(kv_len, mask.extent[1] or 0)
        compiled = cm.compile(mask, q_len, keys, q_start=q_start, tile=tile)
        both(compiled, Case(heads=heads[0], kv_heads=heads[1], dtype=torch.float16), shares)


@pytest.mark.parametrize("case", [Case(sinks=True, heads=4, kv_heads=2), Case(activation="silu", normalizer=30.0)])
def test_gradients_from_what_it_returns(case):
    check(Portable(shares=3), last(*MASKS["rows without keys"]), case, DEVICE)


def test_strides():
    compiled = last(cm.causal(), 5)
    data = tensors(compiled, Case(heads=4, kv_heads=2, head_dim=24, batch=2, dtype=torch.float16), DEVICE)
    split, on_device = Portable(shares=3), compiled.to(DEVICE)
    wanted = split.forward(data.q, data.k, data.v, on_device, data.options)
    plain = (data.q, data.k, data.v)
    by_position = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in plain]
    column_first = [t.mT.contiguous().mT for t in plain]
    wide = [torch.cat([t, t], -1)[..., : t.shape[-1]] for t in plain]
    repeated = [t[:1].expand_as(t) for t in plain]
    for moved in (by_position, column_first, wide):
        for got, want in zip(split.forward(*moved, on_device, data.options), wanted, strict=True):
            assert torch.equal(got, want)
    for got in split.forward(*repeated, on_device, data.options):
        assert torch.equal(got[0], got[1])


def test_every_element_of_the_results_is_written():
    """Memory that was not written would hold NaN here, also that between the two kernels."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        case = Case(heads=3, kv_heads=1, head_dim=24, value_dim=40)
        check_forward((Portable(shares=30),), last(*MASKS["far apart"]), case, DEVICE)
    finally:
        torch.use_deterministic_algorithms(False)


class FirstHalf:
    """The kernel, but only the first half of its programs is launched."""

    kernel = split_keys.attention_share

    def __getitem__(self, grid):
        return self.kernel[(grid[0] // 2,)]


def test_programs_write_nothing_but_their_own_heads(monkeypatch):
    """Three heads share a kv head, and a program has rows for four."""
    compiled = last(cm.causal(), 1)
    data = tensors(compiled, Case(heads=6, kv_heads=2), DEVICE)
    monkeypatch.setattr(split_keys, "attention_share", FirstHalf())
    torch.use_deterministic_algorithms(True)  # fills memory that is not written with NaN
    try:
        out, _ = Portable(shares=2).forward(data.q, data.k, data.v, compiled.to(DEVICE), data.options)
    finally:
        torch.use_deterministic_algorithms(False)
    assert out[:, :3].isfinite().all()
    assert out[:, 3:].isnan().all()


@pytest.mark.skipif(INTERPRETED, reason="programs of the interpreter run one after another")
def test_equal_bits_every_time():
    compiled = last(cm.causal(), 4, keys=20_001)
    data = tensors(compiled, Case(dtype=torch.float16, heads=8, kv_heads=2), DEVICE)
    first, second = (Portable().forward(data.q, data.k, data.v, compiled.to(DEVICE), data.options) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.skipif(INTERPRETED, reason="needs the memory of a GPU")
def test_more_than_two_to_the_31_elements():
    keys, dim = (1 << 24) + 77, 128
    compiled = last(cm.window(2000), 2, tile=(64, 128), keys=keys).to(DEVICE)
    end = last(cm.window(2000), 2, tile=(64, 128), keys=3000).to(DEVICE)
    q = torch.randn(1, 4, 2, dim, dtype=torch.bfloat16, device=DEVICE)
    k, v = (torch.randn(1, 1, keys, dim, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    assert k.numel() > 2**31
    options = tensors(last(cm.causal(), 1), Case()).options
    out, lse = Portable(shares=7).forward(q, k, v, compiled, options)
    wanted, wanted_lse = PLAIN.forward(q, k[:, :, -3000:], v[:, :, -3000:], end, options)
    assert torch.allclose(out.float(), wanted.float(), rtol=2**-7, atol=2**-9)
    assert torch.allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)
