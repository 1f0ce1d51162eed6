"""Target ``flashinfer``: both formats are read by decoders of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export
from tests.interop.samples import PER_HEAD, SAMPLES


def loaded(mask, **options):
    scope = {}
    exec(export(mask, "flashinfer", **options), scope)
    return scope


@pytest.mark.parametrize("name", SAMPLES)
def test_block_sparse_rows(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = loaded(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)
    rows, columns = scope["R"], scope["C"]
    indptr, indices, blocks = scope["block_sparse"]()
    assert (indptr.dtype, indices.dtype, blocks.dtype) == (torch.int32, torch.int32, torch.bool)
    assert len(indptr) == q_len // rows + 1
    assert blocks.shape == (len(indices), rows, columns)
    cells = np.zeros((q_len, kv_len), np.bool_)
    for r in range(q_len // rows):
        listed = indices[indptr[r] : indptr[r + 1]].tolist()
        assert listed == sorted(set(listed))
        for n, c in enumerate(listed, int(indptr[r])):
            assert blocks[n].any()  # empty blocks are not listed
            cells[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns] = blocks[n]
    assert np.array_equal(cells, mask.to_dense(q_len, kv_len, q_start))


@pytest.mark.parametrize("name", SAMPLES)
def test_packed_custom_mask(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    packed = loaded(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)["packed_custom_mask"]().numpy()
    want = np.packbits(mask.to_dense(q_len, kv_len, q_start).reshape(-1), bitorder="little")
    assert np.array_equal(packed, want)


def test_block_sizes():
    assert (loaded(cm.causal(), q_len=48)["R"], loaded(cm.causal(), q_len=512)["R"]) == (16, 64)
    assert loaded(cm.causal(), q_len=64, block_size=(8, 32))["C"] == 32
    with pytest.raises(ValueError, match="32 does not divide 48 keys"):
        export(cm.causal(), "flashinfer", q_len=48, block_size=(16, 32))
    with pytest.raises(ValueError, match="differs by head"):
        export(PER_HEAD, "flashinfer", q_len=50)


def test_equal_blocks_are_stored_once():
    assert len(loaded(cm.causal(), q_len=2048)["PATTERNS"]) == 2  # full, and the diagonal
