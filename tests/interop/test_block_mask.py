"""``from_block_mask``: PyTorch's own block masks, and ours out and back; lists and predicate both count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

import cmask_lab as cm
from cmask_lab.interop.block_mask import from_block_mask
from tests.interop.samples import PER_BATCH, PER_HEAD, SAMPLES


def exported(mask: cm.Mask, **options) -> BlockMask:
    """The ``BlockMask`` that the exported module makes."""
    scope: dict = {}
    exec(cm.export(mask, "flex", **options), scope)
    return scope["make_block_mask"]("cpu")


@pytest.mark.parametrize("name", SAMPLES)
def test_out_and_back(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    blocks = exported(mask, q_len=q_len, kv_len=kv_len, q_start=q_start, block_size=(16, 8))
    assert np.array_equal(from_block_mask(blocks).to_dense(q_len, kv_len), mask.to_dense(q_len, kv_len, q_start))


@pytest.mark.parametrize("mask", [PER_HEAD, PER_BATCH], ids=["per head", "per batch and head"])
def test_batch_entries_and_heads(mask):
    back = from_block_mask(exported(mask, q_len=50, block_size=16))
    assert back.type == mask.type
    for ours, theirs in zip(back.masks, mask.masks, strict=True):
        pairs = [(ours, theirs)] if mask.type == "per_head" else list(zip(ours.masks, theirs.masks, strict=True))
        for one, other in pairs:
            assert np.array_equal(one.to_dense(50), other.to_dense(50))


def test_a_table_that_ends_with_the_sequence():
    """A predicate that reads ``table[q]`` and a length that no block divides: never asked beyond it."""
    table = torch.arange(2046) // 100

    def same(b, h, q, k):
        return table[q] == table[k]

    count = torch.full((1, 1, 16), 16, dtype=torch.int32)
    indices = torch.arange(16, dtype=torch.int32).expand(1, 1, 16, 16).contiguous()
    blocks = BlockMask.from_kv_blocks(count, indices, BLOCK_SIZE=128, mask_mod=same, seq_lengths=(2046, 2046))
    want = cm.documents([100] * 20 + [46])
    assert from_block_mask(blocks).intervals(2046) == want.intervals(2046)


def test_the_lists_count_as_well_as_the_predicate():
    """A block that is not listed is hidden whatever the predicate says; a full one is visible whatever it says."""
    count = torch.tensor([[[1, 0]]], dtype=torch.int32)
    partial = torch.tensor([[[[0, 0], [0, 0]]]], dtype=torch.int32)
    full_count, full = (
        torch.tensor([[[0, 1]]], dtype=torch.int32),
        torch.tensor([[[[0, 0], [1, 0]]]], dtype=torch.int32),
    )
    blocks = BlockMask.from_kv_blocks(
        count, partial, full_count, full, BLOCK_SIZE=2, mask_mod=lambda b, h, q, k: k <= q, seq_lengths=(4, 4)
    )
    want = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert from_block_mask(blocks).to_dense(4).astype(int).tolist() == want


def test_a_predicate_that_looks_at_the_head():
    blocks = create_block_mask(lambda b, h, q, k: k <= q + h, 1, None, 32, 32, "cpu", 16)
    two = from_block_mask(create_block_mask(lambda b, h, q, k: k <= q + h, 1, 2, 32, 32, "cpu", 16))
    assert np.array_equal(two.masks[1].to_dense(32), cm.window(None, 1).to_dense(32))
    assert np.array_equal(from_block_mask(blocks, heads=2).masks[0].to_dense(32), cm.causal().to_dense(32))
    with pytest.raises(ValueError, match="heads is 3, and the lists are for 2"):
        from_block_mask(create_block_mask(lambda b, h, q, k: q >= k, 1, 2, 32, 32, "cpu", 16), heads=3)


def test_what_is_no_block_mask():
    with pytest.raises(TypeError, match="list is not a BlockMask"):
        from_block_mask([])
