"""from_mask_mod: whatever FlexAttention accepts gives the same cells, in bounded memory and never out of range."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import cmask_lab.masks as cm
from cmask_lab.interop import mask_mod as module
from cmask_lab.interop.mask_mod import from_mask_mod

DOCUMENT = torch.tensor([0] * 5 + [1] * 9 + [2] * 23)
COORDS = torch.stack([torch.arange(37) // 6, torch.arange(37) % 6], dim=1)
NUMPY_TABLE = np.arange(37) % 4


def hstu(b, h, q, k):
    last = 30
    return (q == k) | (torch.where(q < last, q, last) > torch.where(k < last, k, last)) | ((q < 4) & (k < last))


MODS = {
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q - k <= 7) & (q >= k),
    "table of q": lambda b, h, q, k: (DOCUMENT[q] == DOCUMENT[k]) & (q >= k),
    "two tables": lambda b, h, q, k: ((COORDS[q] - COORDS[k]) ** 2).sum(-1) < 9,
    "reduction without a dimension": lambda b, h, q, k: (COORDS[q] == COORDS[k]).any(),
    "element of a row": lambda b, h, q, k: COORDS[q][0] == COORDS[k][0],
    "python number": lambda b, h, q, k: k < 11,
    "constant": lambda b, h, q, k: torch.ones((), dtype=torch.bool),
    "hstu": hstu,
}


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize(("q_len", "kv_len"), [(37, 37), (20, 37), (37, 13), (1, 37), (37, 1)])
def test_same_cells_as_flex_attention(name: str, q_len: int, kv_len: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BAND_CELLS", 100)  # many bands, so that their seams are seen
    expected = create_mask(MODS[name], None, None, q_len, kv_len, "cpu")[0, 0].numpy()
    assert np.array_equal(from_mask_mod(MODS[name], q_len, kv_len).to_dense(q_len, kv_len), expected)


def test_bands_of_keys_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BAND_CELLS", 8)
    mask = from_mask_mod(lambda b, h, q, k: (k >= 3) & (k < 30), 2, 37)
    assert mask == cm.explicit([0, 1, 2], [3, 3], [30, 30])


def test_a_function_that_vmap_can_not_run() -> None:
    def with_numpy(b, h, q, k):
        return NUMPY_TABLE[q.numpy()] == NUMPY_TABLE[k.numpy()]

    expected = NUMPY_TABLE[:, None] == NUMPY_TABLE[None, :]
    assert np.array_equal(from_mask_mod(with_numpy, 37).to_dense(37), expected)


def test_batch_and_heads() -> None:
    lengths = torch.tensor([4, 9])

    def mod(b, h, q, k):
        return (k < lengths[b]) & (q - k <= h)

    def dense(b: int, h: int) -> np.ndarray:
        i, j = np.indices((12, 12))
        return (j < lengths[b].item()) & (i - j <= h)

    both = from_mask_mod(mod, 12, batch=2, heads=3)
    assert both.type == "per_batch"
    for b, entry in enumerate(both.masks):
        assert entry.type == "per_head"
        for h, mask in enumerate(entry.masks):
            assert np.array_equal(mask.to_dense(12), dense(b, h))
    heads = from_mask_mod(mod, 12, heads=3)
    assert heads == both.masks[0]
    entries = from_mask_mod(mod, 12, batch=2)
    assert entries == cm.per_batch([entry.masks[0] for entry in both.masks])
    assert from_mask_mod(mod, 12) == heads.masks[0]


def test_a_table_as_long_as_the_sequence_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 2046  # no multiple of a tile or a band
    seen: list[tuple[int, int]] = []
    table = torch.randint(0, 5, (length,), generator=torch.Generator().manual_seed(0)).numpy()

    def mod(b, h, q, k):
        seen.extend((int(side.min()), int(side.max())) for side in (q.numpy(), k.numpy()))
        return table[q.numpy()] == table[k.numpy()]

    monkeypatch.setattr(module, "BAND_CELLS", 1 << 17)
    mask = from_mask_mod(mod, length)
    assert min(low for low, _ in seen) == 0
    assert max(high for _, high in seen) == length - 1
    assert mask.intervals(length).visible_pairs == int((np.bincount(table) ** 2).sum())


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
def test_empty_planes(q_len: int, kv_len: int) -> None:
    assert from_mask_mod(MODS["causal"], q_len, kv_len).to_dense(q_len, kv_len).shape == (q_len, kv_len)


def test_errors_say_what_was_wrong() -> None:
    with pytest.raises(TypeError, match=r"from_mask_mod: 3 is not a function \(b, h, q_idx, kv_idx\) → bool"):
        from_mask_mod(3, 8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"from_mask_mod: the function returned torch\.int64; a mask_mod returns bools"):
        from_mask_mod(lambda b, h, q, k: q - k, 8)
    with pytest.raises(ValueError, match=r"from_mask_mod: q_len is -1; it must be at least 0"):
        from_mask_mod(MODS["causal"], -1)
    with pytest.raises(ValueError, match=r"from_mask_mod: heads is 0; it must be at least 1"):
        from_mask_mod(MODS["causal"], 4, heads=0)


def test_a_function_that_branches_is_refused_with_its_own_error() -> None:
    def branches(b, h, q, k):
        if q > 3:
            return q >= k
        return q == k

    with pytest.raises(ValueError, match=r"failed on queries \[0, 8\) and keys \[0, 8\): .*without branching"):
        from_mask_mod(branches, 8)


def test_a_table_that_is_too_short_is_named() -> None:
    with pytest.raises(ValueError, match=r"failed on queries \[0, 40\) and keys \[0, 40\): IndexError"):
        from_mask_mod(MODS["table of q"], 40)


def test_a_function_that_mixes_positions_is_refused() -> None:
    def mixes(b, h, q, k):
        q.numpy()  # refused under vmap
        return (COORDS[q] == COORDS[k]).any()

    with pytest.raises(ValueError, match=r"gives another answer than on query \d+ and key \d+ alone"):
        from_mask_mod(mixes, 37)


def test_memory_stays_within_256_mb() -> None:
    # In one go every integer temporary of this function would take 200 MB, and there are half a dozen at a time.
    program = """
import resource, torch
from torch.nn.attention.flex_attention import create_mask
from cmask_lab.interop.mask_mod import from_mask_mod
table = torch.arange(262144) // 1000
def mod(b, h, q, k):
    last = 250000
    first, second = torch.where(q < last, q, last), torch.where(k < last, k, last)
    return (table[q] == table[k]) & ((first > second) | (q == k)) & (q - k < 300) | (k % 7777 == q % 7777)
from_mask_mod(mod, 16, 512)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from_mask_mod(mod, 96, 262144)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 <= 256e6
