"""Target ``transformers`` and the ways in: tiny models with random weights, against their own eager attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop import transformers as target
from cmask_lab.interop.export import export
from tests.interop.samples import PER_HEAD

transformers = pytest.importorskip("transformers")

TOKENS = 24
MASKS = {
    "causal": cm.causal(),
    "window": cm.window(6),
    "documents, causal": cm.documents([7, 9, 8]) & cm.causal(),
    "prefix": cm.rect(q=(0, 8), k=(0, 8)) | cm.causal(),
    "image in text": cm.causal() | cm.grid(3, 4).box(1, 1).at(q=(6, 18), k=(6, 18)),
    # Nobody sees the first token either, so what eager makes of its empty row stays there.
    "first query sees nothing": cm.causal() - cm.rect(q=(0, 1)) - cm.rect(k=(0, 1)),
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(params=["exported source", "registered here"])
def install(request):
    """Registers a mask under the name "cmask_lab", in either of the two ways."""

    def from_source(mask):
        exec(compile(export(mask, "transformers"), "exported", "exec"), {})

    return from_source if request.param == "exported source" else target.register


def logits(model, implementation, tokens, **kwargs):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(tokens, **kwargs).logits


def additive(mask, q_len):
    cells = torch.from_numpy(mask.to_dense(q_len))
    return torch.zeros(cells.shape).masked_fill(~cells, torch.finfo(torch.float32).min)[None, None]


@pytest.mark.parametrize("name", MASKS)
def test_forward(model, install, name):
    mask = MASKS[name]
    tokens = torch.randint(1, 64, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    want = logits(model, "eager", tokens, attention_mask=additive(mask, TOKENS))
    install(mask)
    got = logits(model, "cmask_lab", tokens)
    # Eager gives the mean of all values where a query sees nothing; we give 0.
    sees = torch.from_numpy(mask.to_dense(TOKENS).any(1))
    torch.testing.assert_close(got[:, sees], want[:, sees], rtol=1e-4, atol=1e-5)
    assert torch.isfinite(got).all()


def test_padding_still_applies(model, install):
    tokens = torch.randint(1, 64, (2, TOKENS), generator=torch.Generator().manual_seed(2))
    padding = torch.ones(2, TOKENS, dtype=torch.long)
    padding[1, :5] = 0
    want = logits(model, "eager", tokens, attention_mask=padding)
    install(cm.causal())
    got = logits(model, "cmask_lab", tokens, attention_mask=padding)
    torch.testing.assert_close(got[padding.bool()], want[padding.bool()], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padded", [0, 4])
def test_generate(model, install, padded):
    """Step by step with a cache: the queries' offset is that of the cache."""
    tokens = torch.randint(1, 64, (2, 9), generator=torch.Generator().manual_seed(3))
    padding = torch.ones_like(tokens)
    padding[1, :padded] = 0
    arguments = {"attention_mask": padding, "max_new_tokens": 8, "do_sample": False}
    model.set_attn_implementation("eager")
    want = model.generate(tokens, **arguments)
    install(cm.causal())
    model.set_attn_implementation("cmask_lab")
    assert torch.equal(model.generate(tokens, **arguments), want)


def test_generate_with_a_sliding_window(install):
    """Their window of 5 is five keys, the query's own among them: ours of 4. Eight keys decide where it ends."""
    torch.manual_seed(4)
    config = transformers.MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=5,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.MistralForCausalLM(config).eval()
    tokens = torch.randint(1, 64, (1, 16))
    want = logits(model, "eager", tokens)
    install(cm.window(4))
    torch.testing.assert_close(logits(model, "cmask_lab", tokens), want, rtol=1e-4, atol=1e-5)
    install(cm.window(5))
    assert not torch.allclose(logits(model, "cmask_lab", tokens), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16, torch.float16])
def test_four_dimensional_masks_come_back(dtype):
    mask = MASKS["image in text"]
    cells = torch.from_numpy(mask.to_dense(TOKENS))[None, None]
    given = (
        cells
        if dtype == torch.bool
        else torch.zeros(cells.shape, dtype=dtype).masked_fill(~cells, torch.finfo(dtype).min)
    )
    assert np.array_equal(target.from_transformers(given).to_dense(TOKENS), cells[0, 0])


def test_four_dimensional_masks_by_batch_and_head():
    cells = np.random.default_rng(0).random((2, 3, 5, 7)) < 0.5
    back = target.from_transformers(cells)
    for b in range(2):
        for h in range(3):
            assert np.array_equal(back.masks[b].masks[h].to_dense(5, 7), cells[b, h])


def test_a_bias_is_no_mask():
    bias = np.zeros((1, 1, 2, 2))
    bias[0, 0, 1, 0] = -0.5
    with pytest.raises(ValueError, match=r"the value at \(0, 0, 1, 0\) is -0.5"):
        target.from_transformers(bias)
    with pytest.raises(ValueError, match="expected \\(batch, heads or 1, q_len, kv_len\\)"):
        target.from_transformers(np.ones((2, 2), bool))


def test_integers_are_zeros_and_ones():
    cells = np.tri(3, dtype=np.int64)[None, None]
    assert np.array_equal(target.from_transformers(cells).to_dense(3), np.tri(3, dtype=bool))
    with pytest.raises(ValueError, match="int64 with other values than 0 and 1"):
        target.from_transformers((cells - 1) * 10_000)


def test_position_ids():
    ids = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
    mask = target.from_huggingface_position_ids(ids)
    assert mask == cm.per_batch([cm.documents([3, 2, 1]) & cm.causal(), cm.documents([6]) & cm.causal()])
    assert target.from_huggingface_position_ids(ids[0], causal=False) == cm.documents([3, 2, 1])
    with pytest.raises(ValueError, match="expected integers"):
        target.from_huggingface_position_ids([0.5])


def test_masks_by_head_are_refused():
    with pytest.raises(ValueError, match="one mask for all heads"):
        export(PER_HEAD, "transformers")
