"""Target ``xformers`` and back: the exported bias is made with the library itself and materialised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export, export_targets
from cmask_lab.interop.xformers import from_attention_bias
from tests.interop.samples import PER_HEAD, SAMPLES

pytest.importorskip("xformers")
from xformers.ops.fmha import attn_bias

packed = cm.documents([5, 9, 2])
MASKS = {
    "None": (cm.full(), 16, 20),
    "LowerTriangularMask": (cm.causal(), 16, 16),
    "LowerTriangularMask, more keys": (cm.causal(), 12, 16),
    "LowerTriangularFromBottomRightMask": (cm.band(None, 5), 12, 16),
    "LowerTriangularFromBottomRightLocalAttentionMask": (cm.window(3), 16, 16),
    "LocalAttentionFromBottomRightMask": (cm.window(3, 2), 16, 16),
    "LocalAttentionFromBottomRightMask, more keys": (cm.band(-1, 7), 12, 16),
    "BlockDiagonalMask": (packed, 16, 16),
    "BlockDiagonalMask, cross attention": (cm.full().at(q=(0, 5), k=(0, 3)) | cm.full().at(q=(5, 9), k=(3, 12)), 9, 12),
    "BlockDiagonalCausalMask": (packed & cm.causal(), 16, 16),
    "BlockDiagonalCausalFromBottomRightMask": (
        cm.band(None, 3).at(q=(0, 3), k=(0, 5)) | cm.band(None, 2).at(q=(3, 7), k=(5, 10)),
        7,
        10,
    ),
    "BlockDiagonalCausalLocalAttentionMask": (packed & cm.window(3), 16, 16),
}


def seen(bias, q_len, kv_len):
    """The cells of a bias, by the library's own reference."""
    if bias is None:
        return np.ones((q_len, kv_len), np.bool_)
    return (bias.materialize((q_len, kv_len)) == 0).numpy()


@pytest.mark.parametrize("name", MASKS)
def test_out_and_back(name):
    mask, q_len, kv_len = MASKS[name]
    scope = {}
    exec(export(mask, "xformers", q_len=q_len, kv_len=kv_len), scope)
    bias = scope["make_bias"]()
    assert (type(bias).__name__ if bias is not None else "None") == name.split(",")[0]
    want = mask.to_dense(q_len, kv_len)
    assert np.array_equal(seen(bias, q_len, kv_len), want)
    assert np.array_equal(from_attention_bias(bias, q_len, kv_len).to_dense(q_len, kv_len), want)


def exportable() -> list[str]:
    """The samples for which the target says yes."""
    names = []
    for name, (mask, q_len, kv_len, q_start) in SAMPLES.items():
        if export_targets(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)["xformers"].possible:
            names.append(name)
    assert len(names) > 5
    return names


@pytest.mark.parametrize("name", exportable())
def test_whatever_is_exported_is_exact(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = {}
    exec(export(mask, "xformers", q_len=q_len, kv_len=kv_len, q_start=q_start), scope)
    assert np.array_equal(seen(scope["make_bias"](), q_len, kv_len), mask.to_dense(q_len, kv_len, q_start))


def test_biases_with_padded_keys():
    bias = attn_bias.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([2, 3], 8, [5, 7])
    assert np.array_equal(from_attention_bias(bias, 5, 16).to_dense(5, 16), seen(bias, 5, 16))
    bias = attn_bias.BlockDiagonalLocalAttentionPaddedKeysMask.from_seqlens_local([2, 3], 8, [5, 7], 2, 1)
    assert np.array_equal(from_attention_bias(bias, 5, 16).to_dense(5, 16), seen(bias, 5, 16))


def test_pytorch_causal_biases():
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    for make in (causal_lower_right, causal_upper_left):
        cells = make(3, 5)._materialize().numpy()
        assert np.array_equal(from_attention_bias(make(3, 5), 3, 5).to_dense(3, 5), cells)


def test_imports_are_regions():
    bias = attn_bias.BlockDiagonalCausalMask.from_seqlens([3, 5])
    assert from_attention_bias(bias, 8) == cm.documents([3, 5]) & cm.causal()
    bias = bias.make_local_attention(2)
    assert from_attention_bias(bias, 8) == cm.documents([3, 5]) & cm.window(1)


def test_what_does_not_fit_is_refused_with_the_row():
    with pytest.raises(ValueError, match="row 8 sees 2 separate ranges of keys"):
        export(cm.sink(2) | cm.window(5), "xformers", q_len=32)
    with pytest.raises(ValueError, match=r"row 1 sees the keys \[0, 9\), which fits no xFormers bias"):
        export(cm.causal() | cm.rect(q=(0, 9), k=(0, 9)), "xformers", q_len=32)
    with pytest.raises(ValueError, match="differs by head"):
        export(PER_HEAD, "xformers", q_len=50)
    bias = attn_bias.LowerTriangularMaskWithTensorBias(torch.zeros(1, 1, 4, 4))
    with pytest.raises(ValueError, match="LowerTriangularMaskWithTensorBias is not a mask of positions"):
        from_attention_bias(bias, 4)


@pytest.mark.parametrize("bias", [np.full((4, 4), -np.inf), 3, "causal", object()])
def test_what_is_no_bias_is_refused(bias):
    with pytest.raises(ValueError, match="is no xFormers bias"):
        from_attention_bias(bias, 4)
