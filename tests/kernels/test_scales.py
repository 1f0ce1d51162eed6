"""A scale of any sign as kernels take it: positive, with the same scores."""

from __future__ import annotations

import pytest
import torch
from cmask_lab.kernels.scales import positive_scale


@pytest.mark.parametrize("scale", [0.5, -0.5, 0.0])
def test_the_scores_are_the_same_and_the_scale_is_positive(scale):
    query = torch.randn(3)
    given, positive = positive_scale(query, scale)
    assert positive > 0
    assert torch.equal(given * positive, query * scale)
