from __future__ import annotations

import pytest
import torch
from cmask_lab.kernels import cpu_parts
from cmask_lab.kernels.cpu import BACKEND
from cmask_lab.kernels.cpu_rows import tile_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from tests.kernels.masks import compositions, families
from tests.kernels.oracle import Case, check, run, tensors

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("mask", [cm.causal() & cm.prefix(48), cm.documents([38, 30]) - cm.rect(q=(3, 5))], ids=repr)
def test_a_key_that_a_query_does_not_see_may_hold_anything(mask, bad):
    """Memory of a cache that nobody has written yet: a query that does not see it does not know."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 68, 16).unbind()
    wanted = cm.attention(q, k, v, mask, return_lse=True, backend="cpu")
    k = k.clone()
    k[:, :, 40] = bad
    blind = ~torch.from_numpy(mask.to_dense(68))[:, 40]
    for found, right in zip(cm.attention(q, k, v, mask, return_lse=True, backend="cpu"), wanted, strict=True):
        torch.testing.assert_close(found[:, :, blind], right[:, :, blind])
        assert torch.isfinite(found[:, :, blind]).any()


@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
@pytest.mark.parametrize("tile", [(32, 32), (64, 128)], ids=str)
def test_every_family(mask, tile):
    check(BACKEND, cm.compile(mask, 150, tile=tile), Case(dtype=torch.float32, grad_lse=False))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(heads=4, kv_heads=2, head_dim=80, value_dim=80, grad_lse=False),
        Case(heads=3, kv_heads=1, batch=2, sinks=True, grad_lse=False),
        Case(heads=4, kv_heads=2, head_dim=80, value_dim=96),
        Case(heads=3, kv_heads=1, batch=2),
        Case(scale=-0.3),
        Case(scale=0.0),
        Case(softcap=1.5),
        Case(sinks=True, heads=4, kv_heads=2),
        Case(softcap=3.0, sinks=True, grad_lse=False),
        Case(activation="silu", normalizer=150.0),
        Case(activation="silu", normalizer=20.0, softcap=2.0, heads=4, kv_heads=2),
    ],
    ids=str,
)
def test_options(case, dtype):
    check(BACKEND, cm.compile(families()["rows without keys"], 150), Case(**{**vars(case), "dtype": dtype}))


@pytest.mark.parametrize(
    ("q_len", "kv_len", "q_start"), [(1, 150, 149), (65, 200, 100), (150, 64, 0), (1, 1, 0), (129, 33, 5)]
)
def test_lengths(q_len, kv_len, q_start):
    check(BACKEND, cm.compile(cm.window(70), q_len, kv_len, q_start=q_start, tile=(64, 32)), Case(sinks=True))


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("case", [Case(), Case(sinks=True), Case(activation="silu")], ids=["plain", "sinks", "silu"])
def test_nothing_to_do(q_len, kv_len, case):
    check(BACKEND, cm.compile(cm.full(), q_len, kv_len, tile=(64, 64)), case)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_masks_by_batch_and_head(kv_heads):
    one, two, three = cm.causal(), cm.window(5, 60), cm.empty()
    both = cm.per_batch([cm.per_head([one, two, three, one]), cm.per_head([two, two, one, three])])
    for mask in (both, cm.per_head([one, two, three, two]), cm.per_batch([three, two])):
        check(BACKEND, cm.compile(mask, 130, tile=(64, 64)), Case(batch=2, heads=4, kv_heads=kv_heads, sinks=True))


@pytest.mark.parametrize("scores", [1, 100, 2000])
def test_pieces_of_any_size_give_the_same(scores, monkeypatch):
    monkeypatch.setattr(cpu_parts, "SCORES_AT_ONCE", scores)
    case = Case(heads=4, kv_heads=2, batch=2, sinks=True)
    check(BACKEND, cm.compile(cm.window(9, 2), 45, tile=(32, 32)), case)


@settings(max_examples=30)
@given(mask=compositions(), q_len=st.integers(1, 150), kv_len=st.integers(1, 150), tile=st.sampled_from([32, 64]))
def test_compositions(mask, q_len, kv_len, tile):
    check(BACKEND, cm.compile(mask, q_len, max(kv_len, mask.extent[1] or 0), tile=tile), Case(dtype=torch.float64))


def test_strides():
    compiled = cm.compile(cm.causal(), 100, tile=(64, 64))
    data = tensors(compiled, Case(heads=2, kv_heads=1))
    moved = {
        name: getattr(data, name).permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)
        for name in ("q", "k", "v", "grad_out")
    }
    wanted = run(BACKEND, compiled, data)
    for name, value in run(BACKEND, compiled, type(data)(**{**vars(data), **moved})).items():
        torch.testing.assert_close(value, wanted[name])


def test_work_goes_with_the_visible_tiles():
    """Rows are cut so that each sees its window only: 3 of 64 tiles."""
    (rows,) = tile_rows(cm.compile(cm.window(63), 4096, tile=(64, 64)))
    assert len(rows) == 64
    assert max(row.keys for row in rows) == 128
