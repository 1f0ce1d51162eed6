"""Every mask of the gallery, out to each target that can take it; the formats that have a way in come back the same."""

from __future__ import annotations

import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export, export_targets
from cmask_lab.interop.flashmask import from_flashmask
from cmask_lab.interop.hstu import from_hstu
from cmask_lab.interop.magi import from_magi
from cmask_lab.masks import gallery

OPEN_ENDED = 300
"""Length for masks that have none of their own."""


def loaded(mask, target, lengths):
    scope = {}
    exec(compile(export(mask, target, **lengths), target, "exec"), scope)
    return scope


@pytest.fixture(params=gallery.names())
def case(request):
    """A mask and its lengths."""
    mask = gallery.get(request.param)
    queries, keys = (max(made or 0, 1) for made in mask.extent)
    if not export_targets(mask)["dense"].possible:
        queries = keys = max(queries, keys, OPEN_ENDED)
    return mask, {"q_len": queries, "kv_len": keys}


def test_code_and_formula(case):
    """The cmask_lab code has the same spec; the formula that flex, dense and transformers share, the same cells."""
    mask, lengths = case
    assert loaded(mask, "python", lengths)["mask"].spec() == mask.spec()
    cells = loaded(mask, "dense", lengths)["make_mask"]()
    assert torch.equal(cells, torch.from_numpy(mask.to_dense(*lengths.values())))


def test_formats_come_back(case):
    mask, lengths = case
    want = mask.intervals(**lengths)
    answers = export_targets(mask, **lengths)
    q_ranges, k_ranges, types = loaded(mask, "magi", lengths)["slices"]()
    assert from_magi(q_ranges, k_ranges, types, **lengths).intervals(**lengths) == want
    if answers["hstu"].possible:
        func = loaded(mask, "hstu", lengths)["func_tensor"]()
        assert from_hstu(func, **lengths).intervals(**lengths) == want
    if answers["flashmask"].possible:
        scope = loaded(mask, "flashmask", lengths)
        back = from_flashmask(scope["startend_row_indices"](), causal=scope["CAUSAL"], q_len=lengths["q_len"])
        assert back.intervals(**lengths) == want


def test_clear_is_not_for_flashmask():
    """The image's rows are hidden from a key in as many stretches as the disk has lines."""
    answer = export_targets(gallery.get("clear"))["flashmask"]
    assert not answer.possible
    assert "separate stretches of queries" in answer.why


def test_all_targets_take_causal():
    assert all(answer.possible for answer in export_targets(cm.causal(), q_len=64).values())
