"""Target ``hstu`` and back: the interval array is read by a decoder of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.interop.export import export
from cmask_lab.interop.hstu import from_hstu
from tests.interop.samples import PER_HEAD, SAMPLES


@pytest.mark.parametrize("name", [name for name, (_, q_len, kv_len, _) in SAMPLES.items() if q_len <= kv_len])
def test_out_and_back(name):
    mask, q_len, kv_len, q_start = SAMPLES[name]
    scope = {}
    exec(export(mask, "hstu", q_len=q_len, kv_len=kv_len, q_start=q_start), scope)
    func = scope["func_tensor"]()
    assert func.dtype == torch.int32
    assert func.shape[0] == 1
    assert func.shape[1] % 2 == 1
    assert func.shape[2] == q_len + 256
    want = mask.to_dense(q_len, kv_len, q_start)
    key = np.arange(kv_len)
    for i, row in enumerate(func[0, :, :q_len].T.tolist()):
        seen = key < row[0]
        for start, stop in zip(row[1::2], row[2::2], strict=True):
            seen |= (start <= key) & (key < stop)
        assert np.array_equal(seen, want[i])
    assert not func[0, :, q_len:].any()
    assert np.array_equal(from_hstu(func, q_len, kv_len).to_dense(q_len, kv_len), want)


def test_the_fewest_numbers():
    """One number does for masks that begin at the first key, three for one more interval."""
    for mask, numbers in ((cm.causal(), 1), (cm.window(3), 3), (cm.sink(2) | cm.window(3), 3)):
        scope = {}
        exec(export(mask, "hstu", q_len=64), scope)
        assert scope["func_tensor"]().shape[1] == numbers


def test_refusals():
    with pytest.raises(ValueError, match="at most 65536"):
        export(cm.causal(), "hstu", q_len=1, kv_len=65537)
    with pytest.raises(ValueError, match="no more queries than keys"):
        export(cm.full(), "hstu", q_len=9, kv_len=8)
    with pytest.raises(ValueError, match="differs by head"):
        export(PER_HEAD, "hstu", q_len=50)
    with pytest.raises(ValueError, match="odd n_func"):
        from_hstu(np.zeros((2, 8), int), 8)
