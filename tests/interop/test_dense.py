"""Targets ``dense`` and ``sdpa``: the exported sources are run and compared."""

from __future__ import annotations

import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export
from tests.interop.samples import PER_BATCH, SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_mask_and_bias(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = {}
    exec(export(mask, "dense", q_len=q_len, kv_len=kv_len, q_start=q_start), scope)
    want = torch.from_numpy(mask.to_dense(q_len, kv_len, q_start))
    assert torch.equal(scope["make_mask"](), want)
    bias = scope["make_bias"](torch.float16)
    assert bias.dtype == torch.float16
    assert torch.equal(bias.isinf(), ~want)
    assert torch.equal(bias[want], torch.zeros_like(bias[want]))


def test_masks_that_differ_by_batch_and_head():
    scope = {}
    exec(export(PER_BATCH, "dense", q_len=50), scope)
    cells = scope["make_mask"]()
    assert cells.shape == (2, 2, 50, 50)
    for b, entry in enumerate(PER_BATCH.masks):
        for h, head in enumerate(entry.masks):
            assert torch.equal(cells[b, h], torch.from_numpy(head.to_dense(50)))


@pytest.mark.parametrize("name", ["full", "causal", "documents", "text and image", "causal, later queries", "empty"])
def test_attention_through_sdpa(name):
    """Rows that see nothing give 0 (documents: the last rows belong to none)."""
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = {}
    code = export(mask, "sdpa", q_len=q_len, kv_len=kv_len, q_start=q_start)
    exec(code, scope)
    torch.manual_seed(0)
    q = torch.randn(2, 4, q_len, 8, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, kv_len, 8, dtype=torch.float64)
    arguments = [] if name in ("full", "causal") else [scope["make_mask"]()]
    cells = torch.from_numpy(mask.to_dense(q_len, kv_len, q_start))
    scores = (q @ k.repeat_interleave(2, 1).mT / 8**0.5).masked_fill(~cells, float("-inf"))
    want = scores.softmax(-1).nan_to_num() @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(scope["attention"](q, k, v, *arguments), want)
    with pytest.raises(ValueError, match=f"the mask is for {q_len} queries"):
        scope["attention"](q[:, :, 1:], k, v, *arguments)


def test_masks_that_sdpa_knows_need_no_tensor():
    assert "is_causal=True" in export(cm.causal() & cm.prefix(64), "sdpa", q_len=64)
    assert "attn_mask=None" in export(cm.full(), "sdpa", q_len=64)
    assert "is_causal" not in export(cm.causal(), "sdpa", q_len=4, q_start=60)
