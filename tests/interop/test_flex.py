"""Target ``flex``: the exported source is run, its mask and its lists compared with PyTorch's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import cmask_lab as cm
from cmask_lab.interop.export import export
from tests.interop.samples import PER_BATCH, PER_HEAD, SAMPLES

# Uncompiled FlexAttention warns that it is slow; here it is the check.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def loaded(mask, **options):
    scope = {}
    exec(compile(export(mask, "flex", **options), "exported", "exec"), scope)
    return scope


def dense(mask, q_len, kv_len, q_start):
    return torch.from_numpy(mask.to_dense(q_len, kv_len, q_start))


@pytest.mark.parametrize("name", SAMPLES)
def test_mask_mod_and_lists(name):
    """Cell by cell the mask; the lists are those that PyTorch finds by evaluating all cells."""
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = loaded(mask, q_len=q_len, kv_len=kv_len, q_start=q_start, block_size=(16, 8))
    ours = scope["make_block_mask"]("cpu")
    assert torch.equal(
        create_mask(ours.mask_mod, 1, 1, q_len, kv_len, "cpu")[0, 0], dense(mask, q_len, kv_len, q_start)
    )
    same_lists(ours, create_block_mask(ours.mask_mod, 1, 1, q_len, kv_len, "cpu", (16, 8)))


def same_lists(ours, theirs):
    assert (ours.seq_lengths, ours.BLOCK_SIZE) == (theirs.seq_lengths, theirs.BLOCK_SIZE)
    for kind in ("kv", "full_kv", "q", "full_q"):
        count, blocks = getattr(ours, f"{kind}_num_blocks"), getattr(ours, f"{kind}_indices")
        assert torch.equal(count, getattr(theirs, f"{kind}_num_blocks"))
        listed = torch.arange(blocks.shape[-1]) < count[..., None]
        assert torch.equal(blocks[listed], getattr(theirs, f"{kind}_indices")[listed])


@pytest.mark.parametrize("name", SAMPLES)
def test_no_table_is_read_out_of_bounds(name):
    """Flex evaluates a mask far beyond the lengths; tables on the CPU would raise."""
    mask, q_len, kv_len, q_start = SAMPLES[name]
    mask_mod = loaded(mask, q_len=q_len, kv_len=kv_len, q_start=q_start)["make_block_mask"]("cpu").mask_mod
    beyond = create_mask(mask_mod, 1, 1, q_len + 128, kv_len + 128, "cpu")[0, 0]
    assert torch.equal(beyond[:q_len, :kv_len], dense(mask, q_len, kv_len, q_start))


@pytest.mark.parametrize("mask", [PER_HEAD, PER_BATCH], ids=["per head", "per batch and head"])
def test_masks_that_differ_by_batch_and_head(mask):
    scope = loaded(mask, q_len=50, block_size=(16, 32))
    ours = scope["make_block_mask"]("cpu")
    entries = mask.masks if mask.type == "per_batch" else (mask,)
    batch, heads = len(entries), len(entries[0].masks)
    want = torch.stack([torch.stack([dense(head, 50, 50, 0) for head in entry.masks]) for entry in entries])
    assert torch.equal(create_mask(ours.mask_mod, batch, heads, 50, 50, "cpu"), want)
    same_lists(ours, create_block_mask(ours.mask_mod, batch, heads, 50, 50, "cpu", (16, 32)))


def test_attention_agrees_with_a_dense_softmax():
    mask = SAMPLES["text and image"][0]
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 51, 16, dtype=torch.float64)
    scope = loaded(mask)
    out = scope["attention"](q, k, v, scope["make_block_mask"]("cpu"))
    scores = (q @ k.mT / 4).masked_fill(~dense(mask, 51, 51, 0), float("-inf"))
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
    with pytest.raises(ValueError, match="the mask is for 51 queries and 51 keys"):
        scope["attention"](q[:, :, :9], k, v, scope["make_block_mask"]("cpu"))


def test_every_block_partial_gives_the_same_result():
    """What the lists call wholly visible may as well go through the mask."""
    full = loaded(cm.causal(), q_len=64, block_size=16)["make_block_mask"]("cpu")
    partial = create_block_mask(full.mask_mod, 1, 1, 64, 64, "cpu", 16, separate_full_blocks=False)
    q, k, v = torch.randn(3, 1, 2, 64, 16)
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=full), flex_attention(q, k, v, block_mask=partial))


def test_block_sizes_by_chip():
    assert loaded(cm.causal(), q_len=512)["BLOCK_SIZE"] == (128, 128)
    blackwell = loaded(cm.causal(), q_len=512, chip="blackwell", backend="FLASH")
    assert (blackwell["BLOCK_SIZE"], blackwell["KERNEL_OPTIONS"]) == ((256, 128), {"BACKEND": "FLASH"})


def test_formulas_where_there_are_any():
    """No table for anything that a few comparisons say."""
    for name in (
        "causal",
        "disk",
        "neighborhood",
        "equal documents",
        "repeat, equal sizes",
        "text and image",
        "strided",
    ):
        mask, q_len, kv_len, q_start = SAMPLES[name]
        code = export(mask, "flex", q_len=q_len, kv_len=kv_len, q_start=q_start)
        assert "\ndef mask_mod(b, h, q, k):" in code


def test_large_masks_are_never_evaluated():
    """A quarter of a million tokens: the lists alone, by the compiler; as many as the exact formula says."""
    blocks = 262_144 // 128
    ours = loaded(cm.causal(), q_len=262_144)["make_block_mask"]("cpu")
    assert int(ours.full_kv_num_blocks.sum()) == blocks * (blocks - 1) // 2
    assert int(ours.kv_num_blocks.sum()) == blocks


def test_the_source_runs_in_a_process_without_cmask_lab(tmp_path):
    mask, q_len, kv_len, _ = SAMPLES["explicit"]
    code = export(mask, "flex", q_len=q_len, kv_len=kv_len)
    (tmp_path / "exported.py").write_text(code)
    check = "import sys, exported; exported.make_block_mask('cpu'); assert 'cmask_lab' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True)


def test_bad_options():
    with pytest.raises(ValueError, match="chip 'volta' with backend 'TRITON' is unknown"):
        export(cm.causal(), "flex", q_len=8, chip="volta")
    with pytest.raises(ValueError, match="block_size is 100"):
        export(cm.causal(), "flex", q_len=8, block_size=100)


def test_random_masks_of_random_shapes():
    rng = np.random.default_rng(4)
    for _ in range(10):
        q_len, kv_len = rng.integers(1, 70, 2).tolist()
        cells = rng.random((q_len, kv_len)) < rng.random()
        ours = loaded(cm.from_dense(cells), q_len=q_len, kv_len=kv_len, block_size=8)["make_block_mask"]("cpu")
        assert torch.equal(create_mask(ours.mask_mod, 1, 1, q_len, kv_len, "cpu")[0, 0], torch.from_numpy(cells))
        same_lists(ours, create_block_mask(ours.mask_mod, 1, 1, q_len, kv_len, "cpu", 8))
