"""The Triton kernels without a GPU: in the interpreter, and compiled ahead of time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from cmask_lab.kernels.portable import backward, forward
from cmask_lab.kernels.portable.blocks import TENSOR_MEMORY_BYTES, choose
from cmask_lab.kernels.portable.row_statistics import row_statistics
from cmask_lab.kernels.portable.split_keys import attention_share, merge_shares

from tests.kernels.compiled_ahead import SHARED_BYTES, compile_ahead, is_length

KERNELS = {
    "forward": forward.attention_forward,
    "backward_keys": backward.attention_backward_keys,
    "backward_queries": backward.attention_backward_queries,
}
MATRIX_INSTRUCTION = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}


def test_cases_in_the_interpreter(root: Path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kernels/portable_cases.py"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def compile_for(capability: int, kind: str, dim: int, **options):
    """A kernel compiled for a chip that need not be here, with the block shapes that it would get there."""
    limit = SHARED_BYTES[capability] - (TENSOR_MEMORY_BYTES if capability >= 100 else 0)
    blocks = choose(kind, torch.bfloat16, dim, dim, (128, 128), limit)
    return compile_ahead(KERNELS[kind], capability, blocks, dim, **options)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_compiles_ahead_of_time(capability, kind):
    compiled = compile_for(capability, kind, 128)
    assert MATRIX_INSTRUCTION[capability] in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_BYTES[capability]


@pytest.mark.parametrize("options", [{"SILU": True}, {"SOFTCAP": True}], ids=str)
@pytest.mark.parametrize("kind", KERNELS)
def test_options_compile_ahead_of_time(kind, options):
    assert "wgmma" in compile_for(90, kind, 64, **options).asm["ptx"]


@pytest.mark.parametrize("kernel", [*KERNELS.values(), row_statistics, attention_share, merge_shares])
def test_no_length_is_compiled_in(kernel):
    """But whether the columns of q lie side by side is."""
    lengths = [each for each in kernel.params if not each.is_constexpr and is_length(each.name)]
    assert [each.name for each in lengths if not each.do_not_specialize and each.name != "q_column"] == []


def test_pattern_bits_stay_in_the_layout_of_the_scores():
    """Bits must not be moved between threads cell by cell; what is converted is at most the few words of a row."""
    text = compile_for(90, "forward", 128).asm["ttgir"]
    moved = [line for line in text.splitlines() if "convert_layout" in line and "128x128xi" in line]
    assert moved == []
