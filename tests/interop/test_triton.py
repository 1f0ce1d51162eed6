"""Target ``triton``: the exported file is run in Triton's interpreter, in a process that cannot see cmask_lab."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.export import export

pytest.importorskip("triton")

CHECK = """
import sys

import torch

import exported

assert not any(name.startswith("cmask_lab") for name in sys.modules)
cells = torch.load("cells.pt")
torch.manual_seed(0)
heads = max(cells.shape[1], 4)
q = torch.randn(2, heads, cells.shape[2], 16, requires_grad=True)
k, v = (torch.randn(2, heads // 2, cells.shape[3], 16, requires_grad=True) for _ in range(2))
out, lse = exported.attention(q, k, v, return_lse=True)
scores = (q @ k.repeat_interleave(2, 1).mT / 4).masked_fill(~cells, float("-inf"))
want = scores.softmax(-1).nan_to_num() @ v.repeat_interleave(2, 1)
torch.testing.assert_close(out, want)
torch.testing.assert_close(lse, scores.logsumexp(-1))
weight = torch.randn_like(out)
got = torch.autograd.grad((out * weight).sum(), (q, k, v))
# The softmax of an empty row has no gradient in PyTorch; ours is 0.
finite = scores.masked_fill(~cells.any(-1, keepdim=True), 0.0)
want = (finite.softmax(-1) * cells) @ v.repeat_interleave(2, 1)
for ours, theirs in zip(got, torch.autograd.grad((want * weight).sum(), (q, k, v)), strict=True):
    torch.testing.assert_close(ours, theirs)
try:
    exported.attention(q[:, :, 1:], k, v)
except ValueError as error:
    assert "the mask is for" in str(error)
else:
    raise AssertionError("a length that does not fit was accepted")
"""

MASKS = {
    "later queries": (cm.sink(2) | cm.window(20), 33, 80, 47),
    "by head, ragged": (
        cm.per_head([cm.documents([30, 15]) & cm.causal(), cm.window(9), cm.grid(5, 9).disk(3), cm.full()]),
        50,
        50,
        0,
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_forward_and_backward(name, tmp_path):
    import torch

    mask, q_len, kv_len, q_start = MASKS[name]
    code = export(mask, "triton", q_len=q_len, kv_len=kv_len, q_start=q_start, tile=32)
    (tmp_path / "exported.py").write_text(code)
    masks = getattr(mask, "masks", (mask,))
    cells = np.stack([each.to_dense(q_len, kv_len, q_start) for each in masks])[None]
    torch.save(torch.from_numpy(cells), tmp_path / "cells.pt")
    (tmp_path / "check.py").write_text(CHECK)
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "check.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_it_imports_nothing_but_torch_and_triton():
    tree = ast.parse(export(cm.causal(), "triton", q_len=256))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.partition(".")[0])
    assert modules - set(sys.stdlib_module_names) == {"torch", "triton"}


def test_every_name_is_defined_once(tmp_path):
    """The parts come from files that know nothing of one another."""
    tree = ast.parse(export(cm.causal(), "triton", q_len=256))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(names) == len(set(names))


def test_a_long_mask_stays_a_small_file():
    assert len(export(cm.causal(), "triton", q_len=262_144)) < 100_000
