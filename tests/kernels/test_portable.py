"""The Triton kernels without a GPU: in the interpreter, and compiled ahead of time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

from cmask_lab.kernels.portable import backward, forward  # noqa: E402
from cmask_lab.kernels.portable.blocks import TENSOR_MEMORY_BYTES, choose  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

KERNELS = {
    "forward": forward.attention_forward,
    "backward_keys": backward.attention_backward_keys,
    "backward_queries": backward.attention_backward_queries,
}
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Shared memory of one program, CUDA programming guide, table of compute capabilities."""
MATRIX_INSTRUCTION = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}
FLOAT_POINTERS = {"lse", "sinks", "lse2", "delta"}
FLOATS = {"scale", "softcap", "normalizer"}
LISTS = {
    "run_ptr",
    "run_start",
    "run_stop",
    "partial_ptr",
    "partial_tile",
    "partial_pattern",
    "patterns",
    "order",
    "mask_index",
}
RESULTS = {"out", "grad_q", "grad_k", "grad_v"}


def test_cases_in_the_interpreter(root: Path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kernels/portable_cases.py"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def compile_for(capability: int, kind: str, dim: int, **options):
    """A kernel compiled for a chip that need not be here, with the block shapes that it would get there."""
    kernel = KERNELS[kind]
    limit = SHARED_BYTES[capability] - (TENSOR_MEMORY_BYTES if capability >= 100 else 0)
    blocks = choose(kind, torch.bfloat16, dim, dim, (128, 128), limit)
    constants = {"SILU": False, "SOFTCAP": False, "SINKS": False, "Q_TILE": 128, "KV_TILE": 128, "PRECISION": "tf32"}
    constants |= {"BLOCK_M": blocks.queries, "BLOCK_N": blocks.keys, "HEAD": dim, "VALUE": dim}
    constants |= {"HEAD_DIM": dim, "VALUE_DIM": dim} | options
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    rows = {
        "q_tensor": blocks.queries,
        "grad_out_tensor": blocks.queries,
        "k_tensor": blocks.keys,
        "v_tensor": blocks.keys,
    }

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in rows:
            return f"tensordesc<bf16[1,1,{rows[name]},{dim}]>"
        if name in RESULTS:
            return "*bf16"
        if name in FLOAT_POINTERS:
            return "*fp32"
        if name in LISTS:
            return "*i32"
        return "fp32" if name in FLOATS else "i32"

    signature = {name: type_of(name) for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature, constants, aligned)
    settings = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)


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


def test_pattern_bits_stay_in_the_layout_of_the_scores():
    """Bits must not be moved between threads cell by cell; what is converted is at most the few words of a row."""
    text = compile_for(90, "forward", 128).asm["ttgir"]
    moved = [line for line in text.splitlines() if "convert_layout" in line and "128x128xi" in line]
    assert moved == []
