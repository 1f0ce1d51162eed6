"""Target ``fa4``: the formula that the kernel would trace, on NumPy arrays, and the block lists, decoded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export
from tests.interop.samples import PER_BATCH, SAMPLES


def loaded(mask, **options):
    scope = {}
    exec(export(mask, "fa4", **options), scope)
    return scope


def cells(scope, b, h, q_len, kv_len):
    """The formula on all positions at once."""
    tables = [table.numpy() for table in scope["TABLES"]]
    zero = np.zeros((1, 1), np.int64)
    seen = scope["sees"](b + zero, h + zero, np.arange(q_len)[:, None], np.arange(kv_len), tables, np.where)
    return np.broadcast_to(seen, (q_len, kv_len))


@pytest.mark.parametrize("name", SAMPLES)
def test_formula_and_lists(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = loaded(mask, q_len=q_len, kv_len=kv_len, q_start=q_start, block_size=(16, 8))
    want = mask.to_dense(q_len, kv_len, q_start)
    assert np.array_equal(cells(scope, 0, 0, q_len, kv_len), want)
    check_lists([part[0, 0] for part in scope["block_lists"]()], want, 16, 8)


def check_lists(lists, want, rows, columns):
    """Full blocks are full, partial ones are neither full nor empty, and nothing visible lies in another."""
    partial_count, partial, full_count, full = lists
    assert all(part.dtype == torch.int32 for part in lists)
    for r in range(len(partial_count)):
        band = want[r * rows : (r + 1) * rows]
        blocks = [band[:, c : c + columns] for c in range(0, want.shape[1], columns)]
        whole = [c for c, block in enumerate(blocks) if block.all() and block.shape == (rows, columns)]
        some = [c for c, block in enumerate(blocks) if block.any() and c not in whole]
        assert full[r, : full_count[r]].tolist() == whole
        assert partial[r, : partial_count[r]].tolist() == some


def test_masks_that_differ_by_batch_and_head():
    scope = loaded(PER_BATCH, q_len=50, block_size=(16, 8))
    lists = scope["block_lists"]()
    for b, entry in enumerate(PER_BATCH.masks):
        for h, head in enumerate(entry.masks):
            want = head.to_dense(50)
            assert np.array_equal(cells(scope, b, h, 50, 50), want)
            check_lists([part[b, h] for part in lists], want, 16, 8)


def test_the_indices_are_compact():
    """Two kv blocks a row at most in a window: not as many as there are kv blocks."""
    *_, full_count, full = loaded(cm.window(127), q_len=4096)["block_lists"]()
    assert loaded(cm.window(127), q_len=4096)["block_lists"]()[1].shape == (1, 1, 32, 2)
    assert (int(full_count.sum()), full.shape) == (0, (1, 1, 32, 1))


def test_block_sizes_by_chip():
    assert loaded(cm.causal(), q_len=512)["BLOCK_SIZE"] == (128, 128)
    assert loaded(cm.causal(), q_len=512, chip="blackwell")["BLOCK_SIZE"] == (256, 128)
    with pytest.raises(ValueError, match="chip 'ampere' is unknown"):
        export(cm.causal(), "fa4", q_len=8, chip="ampere")


@pytest.mark.parametrize("target", ["flex", "fa4", "flashinfer"])
@pytest.mark.parametrize("block_size", [100, (64, 100), (64,), (0, 64), "64"])
def test_blocks_are_powers_of_two_everywhere(target, block_size):
    with pytest.raises(ValueError, match=r"give \(queries, keys\), both powers of two"):
        export(cm.causal(), target, q_len=300, block_size=block_size)
