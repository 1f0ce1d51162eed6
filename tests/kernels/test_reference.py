from __future__ import annotations

import pytest
import torch
from cmask_lab.kernels.reference import BACKEND, dense_attention
from cmask_lab.kernels.registry import Options

import cmask_lab as cm
from tests.kernels.masks import families
from tests.kernels.oracle import Case, check, dense, tensors

SOFTMAX_AND_SILU = [Case(softcap=2.0, sinks=True), Case(activation="silu", softcap=2.0, normalizer=150.0)]


@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_gradients_written_out_are_those_of_autograd(mask, dtype):
    check(BACKEND, cm.compile(mask, 150), Case(heads=4, value_dim=24, sinks=True, softcap=2.0, dtype=dtype))


@pytest.mark.parametrize("case", SOFTMAX_AND_SILU, ids=["softmax", "silu"])
def test_definition_agrees_with_finite_differences(case):
    compiled = cm.compile(cm.causal() - cm.rect(q=(3, 5)), 9)
    data = tensors(compiled, case)

    def function(q, k, v, sinks=None):
        options = Options(0.3, case.activation, case.softcap, sinks, case.normalizer)
        out, lse = dense_attention(q, k, v, dense(compiled), options)
        return out if lse is None else (out, lse)

    inputs = [tensor.double().requires_grad_() for tensor in (data.q, data.k, data.v)]
    if case.sinks:
        inputs.append(data.options.sinks.double().requires_grad_())
    else:
        # Without sinks the lse of an empty row is -inf, of which no difference can be taken.
        assert case.activation == "silu"
    assert torch.autograd.gradcheck(function, inputs)


def test_agrees_with_pytorch():
    q, k, v = torch.randn(3, 2, 4, 50, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).unbind()
    visible = torch.from_numpy(cm.window(9).to_dense(50))
    out, _ = BACKEND.forward(q, k, v, cm.compile(cm.window(9), 50), Options(scale=0.25))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=0.25)
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


def test_a_sink_is_a_key_without_a_value():
    compiled = cm.compile(cm.causal(), 20)
    data = tensors(compiled, Case(sinks=True, dtype=torch.float64))
    options = data.options
    with_sink = dense_attention(data.q, data.k, data.v, dense(compiled), options)
    # One more key at right angles to nothing: scores are replaced by the sink's logit, the value is zero.
    score = torch.cat(
        [options.scale * data.q @ data.k.mT, options.sinks.double()[None, :, None, None].expand(1, 2, 20, 1)], -1
    )
    visible = torch.cat([dense(compiled), torch.ones(1, 1, 20, 1, dtype=torch.bool)], -1)
    weights = torch.softmax(score.masked_fill(~visible, float("-inf")), -1)
    torch.testing.assert_close(with_sink[0], weights[..., :-1] @ data.v, rtol=1e-12, atol=1e-12)
