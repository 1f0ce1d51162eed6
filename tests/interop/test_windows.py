"""Window conventions: the numbers of other libraries against what they show."""

from __future__ import annotations

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.windows import from_window
from cmask_lab.masks.window_counts import WINDOW_COUNTS

SIZE = 5


@pytest.mark.parametrize("library", WINDOW_COUNTS)
def test_a_window_shows_as_many_keys_as_the_library_says(library):
    count = WINDOW_COUNTS[library]
    mask = from_window(library, SIZE)
    assert mask.to_dense(20)[-1].sum() == (SIZE if count.counts_itself else SIZE + 1)
    assert count.size(mask.left) == SIZE
    assert not cm.check(mask, 20, library=library, window=SIZE).by("window"), "the linter must count alike"


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
