"""Window conventions: the numbers of other libraries against what they show."""

from __future__ import annotations

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.windows import COUNTS_ITSELF, from_window, window_for

SIZE = 5


@pytest.mark.parametrize("library", COUNTS_ITSELF)
def test_there_and_back(library):
    mask = from_window(library, SIZE)
    assert window_for(library, mask) == SIZE
    keys = mask.to_dense(20)[-1].sum()
    assert keys == (SIZE if COUNTS_ITSELF[library] else SIZE + 1)


def test_against_the_libraries_that_are_here():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers.masking_utils")
    theirs = transformers.sdpa_mask(
        1,
        20,
        20,
        mask_function=transformers.sliding_window_causal_mask_function(SIZE),
        allow_is_causal_skip=False,
    )
    assert np.array_equal(from_window("huggingface", SIZE).to_dense(20), theirs[0, 0])
    xformers = pytest.importorskip("xformers.ops.fmha.attn_bias")
    bias = xformers.LowerTriangularFromBottomRightLocalAttentionMask(SIZE).materialize((20, 20))
    assert np.array_equal(from_window("xformers", SIZE).to_dense(20), torch.isfinite(bias))


def test_refusals():
    with pytest.raises(ValueError, match="library 'keras' is unknown"):
        from_window("keras", 4)
    with pytest.raises(ValueError, match="the size for huggingface is 0; it must be at least 1"):
        from_window("huggingface", 0)
    with pytest.raises(ValueError, match="is not a causal window with an end"):
        window_for("jax", cm.window(3, 3))
