"""An attention sink outside of the tiles: against autograd of the log-sum-exp with one more logit."""

from __future__ import annotations

import torch
from cmask_lab.kernels.sinks import nothing_visible, sink_gradient


def test_without_keys_there_is_the_sink_or_nothing():
    out, lse = torch.full((1, 2, 3, 8), torch.nan), torch.full((1, 2, 3), torch.nan)
    nothing_visible(out, None, None)
    assert not out.any()
    nothing_visible(out, lse, None)
    assert torch.isneginf(lse).all()
    nothing_visible(out, lse, torch.tensor([1.0, 2.0]))
    assert lse.tolist() == [[[1.0] * 3, [2.0] * 3]]


def test_the_gradient_is_that_of_one_more_logit_without_a_value():
    generator = torch.Generator().manual_seed(0)
    scores, value = (torch.randn(2, 3, 4, 5, generator=generator).double() for _ in range(2))
    sinks = torch.randn(3, generator=generator).double().requires_grad_()
    grad_out, grad_lse = (torch.randn(2, 3, 4, generator=generator).double() for _ in range(2))
    lse = torch.logsumexp(torch.cat([scores, sinks[None, :, None, None].expand(2, 3, 4, 1)], -1), -1)
    out = (torch.exp(scores - lse[..., None]) * value).sum(-1)
    (wanted,) = torch.autograd.grad([out, lse], sinks, [grad_out, grad_lse])
    delta = grad_out * out - grad_lse
    torch.testing.assert_close(sink_gradient(sinks.detach(), lse.detach(), delta.detach()), wanted)
