"""Token orders: what is brought into an order and back is what it was, whatever moves it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from cmask_lab.kernels.token_order import in_natural_order, in_order

import cmask_lab as cm

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    return request.param


def reversed_mask(length: int, device: str):
    return cm.compile(cm.causal(), length, order=np.arange(length)[::-1]).to(device)


def test_an_order_goes_with_its_mask(device):
    mask = reversed_mask(50, device)
    in_order([torch.randn(1, 1, 50, 8, device=device)], mask)
    gone = weakref.ref(mask)
    del mask
    gc.collect()
    assert gone() is None, "what was put on the device for a mask must not keep it alive"


def test_no_order_no_copy(device):
    tensor = torch.randn(1, 2, 10, 16, device=device)
    mask = cm.compile(cm.causal(), 10).to(device)
    assert in_order([tensor], mask)[0] is tensor
    assert in_natural_order([tensor], mask)[0] is tensor


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 3, 50), (2, 3, 50, 80), (1, 1, 50, 1), (2, 3, 50, 600), (0, 3, 50, 16)])
def test_position_p_holds_the_token_that_the_order_names(device, shape, dtype):
    tensor = torch.randn(shape, device=device).to(dtype)
    mask = reversed_mask(50, device)
    (moved,) = in_order([tensor], mask)
    assert torch.equal(moved, tensor.flip(2))
    assert torch.equal(in_natural_order([moved], mask)[0], tensor)


def test_the_way_back_is_the_inverse(device):
    mask = cm.compile(cm.causal(), 50, order=np.random.default_rng(0).permutation(50)).to(device)
    tensor = torch.randn(1, 2, 50, 16, device=device)
    (moved,) = in_order([tensor], mask)
    assert torch.equal(moved, tensor[:, :, torch.from_numpy(mask.token_order).long().to(device)])
    assert torch.equal(in_natural_order([moved], mask)[0], tensor)


def test_tensors_of_several_kinds_at_once(device):
    tensors = [
        torch.randn(2, 4, 50, 24, device=device),
        torch.randn(2, 1, 50, 24, device=device),
        torch.randn(2, 4, 50, device=device),
        torch.randn(1, 1, 50, 1, device=device).expand(2, 4, 50, 16),
        torch.randn(2, 50, 1, 7, device=device, dtype=torch.float64).transpose(1, 2),
    ]
    for moved, tensor in zip(in_order(tensors, reversed_mask(50, device)), tensors, strict=True):
        assert torch.equal(moved, tensor.flip(2))


def test_strided_tensors(device):
    tensor = torch.randn(2, 50, 3, 160, device=device).transpose(1, 2)[..., ::2]
    assert torch.equal(in_order([tensor], reversed_mask(50, device))[0], tensor.flip(2))


def test_more_than_two_to_the_31_elements_apart(device):
    if device == "cpu":
        pytest.skip("the 4 GB are for the GPU's kernel")
    tensor = torch.zeros(2, 2**24 + 1, 64, dtype=torch.bfloat16, device=device)[:, None, :200]
    tensor[1, 0] = torch.randn(200, 64, device=device)
    assert torch.equal(in_order([tensor], reversed_mask(200, device))[0], tensor.flip(2))


def test_derivatives_go_through(device):
    tensor = torch.randn(1, 1, 50, 8, device=device, requires_grad=True)
    in_order([tensor], reversed_mask(50, device))[0][:, :, 0].sum().backward()
    assert tensor.grad is not None
    assert tensor.grad[0, 0].sum(1).nonzero().tolist() == [[49]]
