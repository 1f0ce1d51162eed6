"""Target ``flashmask`` and back: the exported arrays are read by a decoder of its own, one cell after another."""

from __future__ import annotations

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.export import export, export_targets
from cmask_lab.interop.flashmask import from_flashmask
from tests.interop.samples import PER_HEAD, SAMPLES

EXPRESSIBLE = [
    name
    for name, (mask, q_len, kv_len, q_start) in SAMPLES.items()
    if export_targets(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)["flashmask"].possible
]


def cells(indices, causal, rows):
    """bool (rows, keys), from the definition: what each number hides, key by key."""
    seen = np.ones((rows, len(indices)), np.bool_)
    for key, numbers in enumerate(indices.tolist()):
        if causal:
            seen[:key, key] = False
        if len(numbers) == 1:
            seen[numbers[0] :, key] = False
        elif len(numbers) == 2 and causal:
            seen[numbers[0] : numbers[1], key] = False
        elif len(numbers) == 2:
            seen[numbers[0] :, key] = False
            seen[: numbers[1], key] = False
        else:
            seen[numbers[0] : numbers[1], key] = False
            seen[numbers[2] : numbers[3], key] = False
    return seen


def exported(mask, **lengths):
    scope = {}
    exec(export(mask, "flashmask", **lengths), scope)
    return scope["startend_row_indices"](2), scope["CAUSAL"]


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_out_and_back(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    indices, causal = exported(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)
    want = mask.to_dense(q_len, kv_len, q_start)
    assert (indices.dtype, indices.shape[:3]) == (np.int32, (2, 1, kv_len))
    assert np.array_equal(cells(indices[1, 0], causal, q_len), want)
    assert np.array_equal(from_flashmask(indices, causal=causal, q_len=q_len).to_dense(q_len, kv_len), want)


def test_the_masks_of_the_paper_are_expressible():
    assert {"causal", "window", "documents", "sink and window", "prefix", "repeat"} <= set(EXPRESSIBLE)


@pytest.mark.parametrize(
    ("mask", "numbers", "causal"),
    [
        (cm.causal(), 1, True),
        (cm.window(5), 1, True),
        (cm.documents([20, 44]) & cm.causal(), 1, True),
        (cm.causal() - cm.rect(q=(40, 50), k=(0, 9)), 2, True),
        (cm.documents([20, 44]), 2, False),
        (cm.sink(4) | cm.window(10), 1, True),
        (cm.global_tokens([(0, 2)]) | cm.window(4, 4), 4, False),
    ],
)
def test_the_smallest_form_that_is_exact(mask, numbers, causal):
    indices, is_causal = exported(mask, q_len=64)
    assert (indices.shape[-1], is_causal) == (numbers, causal)


def test_masks_that_differ_by_head():
    """All heads get the form that the most demanding of them needs."""
    indices, causal = exported(PER_HEAD, q_len=50)
    assert indices.shape == (2, 3, 50, 2)
    for head, mask in enumerate(PER_HEAD.masks):
        assert np.array_equal(cells(indices[0, head], causal, 50), mask.to_dense(50))
    assert (
        from_flashmask(indices, causal=causal).masks[1].to_dense(50).tolist() == PER_HEAD.masks[1].to_dense(50).tolist()
    )


def test_what_it_cannot_express_is_refused_with_the_key():
    clear = cm.rect(k=(0, 16)) | cm.rect(q=(0, 16)) | cm.grid(12, 16).disk(4).at(q=(16, 208), k=(16, 208))
    columns = clear.to_dense(208).T
    hidden = [np.flatnonzero(np.diff(np.r_[1, column, 1].astype(int)) == -1).size for column in columns]
    key = next(n for n, pieces in enumerate(hidden) if pieces > 2)
    with pytest.raises(ValueError, match=f"key {key} is hidden from {hidden[key]} separate stretches of queries"):
        export(clear, "flashmask")


def test_windows_count_the_query_itself():
    """LTS = j + W is a window of W keys."""
    indices = np.minimum(np.arange(32) + 4, 32)[:, None]
    assert np.array_equal(from_flashmask(indices, causal=True).to_dense(32), cm.window(3).to_dense(32))


def test_bad_arrays():
    with pytest.raises(ValueError, match="3 numbers a key with causal=True"):
        from_flashmask(np.zeros((4, 3), int), causal=True)
    with pytest.raises(ValueError, match="expected integers"):
        from_flashmask(np.zeros((1, 4, 3), int), causal=True)
    with pytest.raises(ValueError, match="it needs equally many"):
        from_flashmask(np.zeros((4, 1), int), causal=True, q_len=9)
