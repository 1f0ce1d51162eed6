"""A portable kernel compiled for a chip that need not be here."""

from __future__ import annotations

import triton
from cmask_lab.kernels.portable.blocks import Blocks
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Shared memory of one program, CUDA programming guide, table of compute capabilities."""
FLOAT_POINTERS = {"lse", "sinks", "lse2", "delta", "grad_lse", "share_out", "share_lse2"}
FLOATS = {"scale", "softcap", "normalizer"}
LISTS = {
    "run_ptr",
    "run_start",
    "run_stop",
    "run_first",
    "partial_ptr",
    "partial_tile",
    "partial_pattern",
    "patterns",
    "order",
    "mask_index",
}
TENSORS = {"q", "out", "grad_out", "grad_q", "grad_k", "grad_v"}
ROWS = {"q_tensor": "queries", "grad_out_tensor": "queries", "k_tensor": "keys", "v_tensor": "keys"}


def is_length(name: str) -> bool:
    """Whether the argument of that name is an integer: a length, a number of something, or a stride."""
    return name not in FLOAT_POINTERS | FLOATS | LISTS | TENSORS | ROWS.keys()


def compile_ahead(kernel, capability: int, blocks: Blocks, dim: int, **options):
    """The kernel for bfloat16 with all head dimensions ``dim``, tiles of 128×128, and these blocks and constants."""
    constants = {"SILU": False, "SOFTCAP": False, "SINKS": False, "Q_TILE": 128, "KV_TILE": 128, "PRECISION": "tf32"}
    constants |= {"BLOCK_M": blocks.queries, "BLOCK_N": blocks.keys, "HEAD": dim, "VALUE": dim}
    constants |= {"HEAD_DIM": dim, "VALUE_DIM": dim} | options
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}

    def type_of(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in ROWS:
            return f"tensordesc<bf16[1,1,{getattr(blocks, ROWS[name])},{dim}]>"
        if name in TENSORS:
            return "*bf16"
        if name in FLOAT_POINTERS:
            return "*fp32"
        if name in LISTS:
            return "*i32"
        return "i32" if is_length(name) else "fp32"

    signature = {name: type_of(name) for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature, constants, aligned)
    settings = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)
