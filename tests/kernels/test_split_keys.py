"""The forward pass that splits the keys: its rule, its kernels in the interpreter and compiled ahead of time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from cmask_lab.kernels import hopper
from cmask_lab.kernels.portable import backend as portable
from cmask_lab.kernels.portable.backend import Portable
from cmask_lab.kernels.portable.blocks import TENSOR_MEMORY_BYTES, Blocks, choose
from cmask_lab.kernels.portable.shares import (
    KEYS_A_SHARE,
    ROWS,
    rows_shape,
    rows_wanted,
    share_count,
)
from cmask_lab.kernels.portable.split_keys import MERGED_AT_ONCE, attention_share, merge_shares
from cmask_lab.kernels.registry import Options

import cmask_lab as cm
from tests.kernels.compiled_ahead import SHARED_BYTES, compile_ahead

MATRIX_INSTRUCTION = {
    (80, 16): "mma.sync",
    (80, 64): "mma.sync",
    (90, 16): "mma.sync",
    (90, 64): "wgmma.mma_async",
    (100, 16): "mma.sync",
    (100, 64): "tcgen05.mma",
}
"""By chip and rows: the newer instructions take 64 rows at least."""


def test_cases_in_the_interpreter(root: Path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "tests/kernels/split_keys_cases.py",
    ]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@given(items=st.integers(1, 500), row_keys=st.integers(0, 1 << 24), multiprocessors=st.integers(1, 200))
def test_shares_give_every_multiprocessor_one_program_at_most(items, row_keys, multiprocessors):
    shares = share_count(items, row_keys, multiprocessors)
    assert shares >= 1
    if shares > 1:
        assert items * shares <= multiprocessors
        assert row_keys >= shares * KEYS_A_SHARE
    # One more would be too many programs, or too few keys a share.
    assert items * (shares + 1) > multiprocessors or row_keys < (shares + 1) * KEYS_A_SHARE


@given(q_len=st.integers(1, 1000), heads=st.integers(1, 200), q_tile=st.sampled_from([32, 64, 128, 256]))
def test_rows_hold_queries_of_one_tile_for_as_many_heads_as_fit(q_len, heads, q_tile):
    wanted = rows_wanted(q_len, heads, q_tile)
    assert ROWS[0] <= wanted <= ROWS[1]
    rows = ROWS[0]
    while rows <= wanted:
        packed, queries = rows_shape(rows, q_len, heads, q_tile)
        assert packed * queries == rows
        assert q_tile % queries == 0
        assert packed < 2 * heads
        assert packed == 1 or queries >= min(q_len, q_tile)
        rows *= 2


def problem(q_len: int, kv_len: int, batch: int, heads: int, kv_heads: int, mask: cm.Mask):
    """A compiled mask for the last queries, and tensors without memory of their own."""
    q, k = (torch.zeros(()).half().expand(batch, h, s, 128) for h, s in ((heads, q_len), (kv_heads, kv_len)))
    return q, k, k, cm.compile(mask, q_len, kv_len, q_start=kv_len - q_len)


@pytest.mark.parametrize(
    ("arguments", "shares"),
    [
        ((1, 65536, 1, 32, 8, cm.causal()), 132 // 8),
        ((16, 65536, 1, 8, 8, cm.causal()), 132 // 8),
        ((1, 65536, 2, 128, 1, cm.causal()), 132 // 4),  # 64 of 128 heads a program
        ((1, 65536, 1, 32, 8, cm.per_head([cm.causal(), cm.full()] * 16)), 132 // 32),  # heads of a group differ
        ((1, 65536, 1, 32, 8, cm.window(1000)), 1024 // KEYS_A_SHARE),
        ((1, 300, 1, 32, 8, cm.causal()), 1),
        ((1, 65536, 64, 32, 8, cm.causal()), 1),
        ((8192, 8192, 1, 32, 8, cm.causal()), 1),
    ],
    ids=["decode", "16 queries", "one kv head", "masks by head", "window", "short", "batch", "prefill"],
)
def test_few_work_items_with_long_keys_are_split(monkeypatch, arguments, shares):
    monkeypatch.setattr(portable, "multiprocessors", lambda device: 132)
    assert Portable().split(*problem(*arguments)).shares == shares


def test_nothing_is_split_where_there_is_no_device_to_fill():
    assert Portable().split(*problem(1, 65536, 1, 8, 8, cm.causal())).shares == 1


@pytest.mark.parametrize(
    ("q_len", "shares", "taken"), [(1, 5, "portable"), (16, 5, "portable"), (16, 1, "hopper"), (17, 5, "hopper")]
)
def test_hopper_leaves_few_queries_that_are_split_to_portable(monkeypatch, q_len, shares, taken):
    split = SimpleNamespace(shares=shares)
    monkeypatch.setattr(
        hopper, "PORTABLE", SimpleNamespace(split=lambda *_: split, forward=lambda *_: ("portable", None))
    )
    monkeypatch.setattr(hopper, "_forward", SimpleNamespace(forward=lambda *_: ("hopper", None)))
    out, _ = hopper.BACKEND.forward(*problem(q_len, 4096, 1, 8, 8, cm.causal()), Options(1.0))
    assert out == taken


@pytest.mark.parametrize(("capability", "rows"), MATRIX_INSTRUCTION, ids=str)
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_shares_compile_ahead_of_time(capability, rows, dim):
    limit = SHARED_BYTES[capability] - (TENSOR_MEMORY_BYTES if capability >= 100 else 0)
    blocks = choose("split_keys", torch.bfloat16, dim, dim, (rows, 128), limit)
    assert blocks.queries == rows
    compiled = compile_ahead(attention_share, capability, blocks, dim, QUERIES=4)
    assert MATRIX_INSTRUCTION[capability, rows] in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_BYTES[capability]
    assert "st.local" not in compiled.asm["ptx"]


@pytest.mark.parametrize("options", [{"SILU": True}, {"SOFTCAP": True}], ids=str)
def test_options_of_shares_compile_ahead_of_time(options):
    compiled = compile_ahead(attention_share, 90, Blocks(16, 64, 4, 2), 64, QUERIES=1, **options)
    assert "mma.sync" in compiled.asm["ptx"]


@pytest.mark.parametrize("options", [{}, {"SINKS": True}, {"SILU": True}], ids=str)
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_merging_compiles_ahead_of_time(capability, options):
    blocks = Blocks(1, 32, 4, 1)
    compiled = compile_ahead(merge_shares, capability, blocks, 128, AT_ONCE=MERGED_AT_ONCE, **options)
    assert compiled.metadata.shared <= SHARED_BYTES[capability]
