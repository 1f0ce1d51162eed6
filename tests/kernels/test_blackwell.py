"""The Blackwell backend without the chip: its arithmetic in the interpreter, and what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels import registry
from cmask_lab.kernels.blackwell import BACKEND, TILES
from cmask_lab.kernels.registry import Problem


def test_cases_in_the_interpreter(root: Path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kernels/blackwell_cases.py"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


B200 = Problem("cuda", (10, 0), torch.bfloat16, 128, 128, 1, 16, 16, 4096, 4096, (128, 128))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float32}, "takes bfloat16 and float16, not float32"),
        ({"value_dim": 64}, "got 128 and 64"),
        ({"head_dim": 20, "value_dim": 20}, "a multiple of 8 and at most 128"),
        ({"tile": (64, 64)}, r"takes tiles of (128, 128) and (128, 64), not (64, 64)"),
        ({"softcap": True}, "without softcap or sinks"),
        ({"activation": "silu"}, "computes the plain softmax"),
    ],
)
def test_says_what_it_cannot_run(change, reason):
    assert reason in BACKEND.unsupported(replace(B200, **change))


@pytest.mark.parametrize("needs_grad", [False, True], ids=["forward", "and backward"])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_a_call_with_gradients_stays_here(tile, needs_grad):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.choose(replace(B200, tile=tile, needs_grad=needs_grad)).name == "blackwell"


@pytest.mark.parametrize(
    "change", [{"softcap": True}, {"sinks": True}, {"activation": "silu"}, {"value_dim": 64}], ids=str
)
def test_what_it_declines_goes_to_the_portable_kernels(change):
    with pytest.warns(UserWarning, match="blackwell .*; portable runs instead"):
        assert registry.choose(replace(B200, needs_grad=True, **change)).name == "portable"
