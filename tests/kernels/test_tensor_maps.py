"""What TMA can read as it is, and what is copied for it."""

from __future__ import annotations

import pytest
import torch
from cmask_lab.kernels.tensor_maps import tma_ready, tma_strides


def test_tensors_that_tma_can_read_are_not_copied():
    plain = torch.randn(2, 4, 10, 64, dtype=torch.bfloat16)
    by_position = torch.randn(2, 10, 4, 64, dtype=torch.bfloat16).transpose(1, 2)
    for tensor in (plain, by_position, plain[:, 1:3], by_position[..., :32]):
        assert tma_ready(tensor).data_ptr() == tensor.data_ptr()
    for tensor in (
        plain[..., 1:33],
        plain.mT,
        plain[:, :1].expand(2, 4, 10, 64),
        plain.flatten()[3:643].view(1, 1, 10, 64),
    ):
        ready = tma_ready(tensor)
        assert ready.data_ptr() != tensor.data_ptr()
        assert ready.data_ptr() % 16 == 0
        assert tma_ready(ready) is ready
        assert torch.equal(ready, tensor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("width", [1, 7, 20, 64])
def test_rows_of_any_width_become_rows_of_whole_units(width, dtype):
    tensor = torch.randn(2, 3, 5, width).to(dtype)
    ready = tma_ready(tensor)
    assert torch.equal(ready, tensor)
    assert all(stride * tensor.element_size() % 16 == 0 for stride in tma_strides(ready)[:-1])


def test_the_stride_of_an_axis_of_one_entry_is_made_valid():
    tensor = torch.randn(5, 64).to(torch.float16).as_strided((1, 1, 5, 64), (1, 3, 64, 1))
    assert tma_ready(tensor) is tensor
    assert tma_strides(tensor) == [8, 8, 64, 1]
