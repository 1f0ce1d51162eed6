"""Compile the kernels for sm_90 without a GPU and read what ptxas says about them.

``python -m cmask_lab.kernels.hopper.compile_ahead`` prints the report of every variant: questions that cost no time on
a device. Spills, or wgmma that ptxas had to serialise (warnings C7510 and following), explain a slow kernel.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from cmask_lab.kernels.hopper.backward import backward_kernel, block_q
from cmask_lab.kernels.hopper.forward import forward_kernel
from cmask_lab.kernels.hopper.launch import ROW_LAYOUT, TILE_LAYOUT, stages
from cmask_lab.kernels.hopper.query_gradient import BLOCK_K, query_gradient_kernel
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

ARRAYS = dict.fromkeys(
    ("program_items", "items", "partial_tile", "partial_pattern", "run_start", "run_stop", "patterns"), "*i32"
)
SCALES = dict.fromkeys(("score_scale", "tanh_scale", "out_scale", "dq_scale", "dk_scale", "dv_scale"), "fp32")
LENGTHS = dict.fromkeys(("q_len", "heads", "q_rows"), "i32")


@dataclass(frozen=True)
class Report:
    """What came out of the compiler.

    Attributes:
        ptx: the PTX text.
        cubin: the machine code.
        shared_bytes: shared memory of a program.
        registers, spill_bytes: of ptxas, for the whole kernel (partitions trade registers at run time).
        warnings: lines in which ptxas complains, such as C7510 "wgmma serialized".
    """

    ptx: str
    cubin: bytes
    shared_bytes: int
    registers: int
    spill_bytes: int
    warnings: tuple[str, ...]

    def count(self, pattern: str) -> int:
        """How often a regular expression is found in the PTX."""
        return len(re.findall(pattern, self.ptx))

    def __str__(self) -> str:
        facts = {
            "wgmma": r"wgmma\.mma_async",
            "TMA loads": r"cp\.async\.bulk\.tensor\S*\.global",
            "TMA stores": r"cp\.async\.bulk\.tensor\S*global\.shared",
            "TMA adds": r"cp\.reduce\.async\.bulk",
            "setmaxnreg": r"setmaxnreg",
            "bar.sync": r"bar(?:rier)?\.sync",
        }
        counts = ", ".join(f"{self.count(pattern)} {name}" for name, pattern in facts.items())
        sizes = f"{self.shared_bytes} B shared, {self.registers} registers, {self.spill_bytes} B spilled"
        return "\n    ".join([f"{sizes}, {counts}", *self.warnings])


def compile_kernel(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], num_warps: int = 4) -> Report:
    """Compile a Gluon kernel for sm_90.

    Args:
        kernel: a ``gluon.jit`` function.
        types: Triton type of each run-time argument, such as ``"*fp32"`` or ``"i32"``.
        constants: value of each ``constexpr`` argument.
        num_warps: warps of the first partition.
    """
    names = kernel.arg_names
    missing = set(names) - set(types) - set(constants)
    if missing:
        raise ValueError(f"compile_kernel: no type or value for {sorted(missing)}")
    source = GluonASTSource(
        kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types.get(name, "").startswith("*")},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    log = _ptxas_log(compiled.asm["ptx"])
    spilled = [int(n) for pair in re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log) for n in pair]
    registers = re.search(r"Used (\d+) registers", log)
    if registers is None:
        raise RuntimeError(f"ptxas said nothing about registers:\n{log}")
    return Report(
        ptx=compiled.asm["ptx"],
        cubin=compiled.asm["cubin"],
        shared_bytes=compiled.metadata.shared,
        registers=int(registers[1]),
        spill_bytes=sum(spilled),
        warnings=tuple(line.strip() for line in log.splitlines() if "warning" in line.lower() or "C75" in line),
    )


def _ptxas_log(ptx: str) -> str:
    """The messages of the ptxas that Triton carries."""
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        command = [str(ptxas), "-v", "--gpu-name=sm_90a", str(file), "-o", os.devnull]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


def _tile_type(rank: int, rows: int, head_dim: int, dtype: str) -> str:
    """Triton's name for the descriptor that ``launch.tile_descriptor`` makes."""
    block = ", ".join(["1"] * (rank - 2) + [str(rows), str(head_dim)])
    return f"tensordesc<{dtype}[{block}],{TILE_LAYOUT[rank]!r}>"


def compile_forward(
    head_dim: int = 128,
    dtype: str = "bf16",
    tile: tuple[int, int] = (128, 128),
    *,
    head_group: int = 1,
    softmax: bool = True,
    softcap: bool = False,
    sinks: bool = False,
) -> Report:
    """The forward kernel as ``forward.forward`` launches it; ``head_dim`` 64 or 128, ``dtype`` "bf16" or "fp16"."""
    types = ARRAYS | SCALES | LENGTHS | {"lse": "*fp32", "sinks": "*fp32"}
    types["query_tma"] = _tile_type(4, 64, head_dim, dtype)
    types["key_tma"] = types["value_tma"] = _tile_type(4, tile[1], head_dim, dtype)
    types["out_tma"] = _tile_type(3, 64, head_dim, dtype)
    constants = {
        "CONSUMERS": tile[0] // 64,
        "KV_TILE": tile[1],
        "HEAD_DIM": head_dim,
        "STAGES": stages(head_dim, tile[1]),
        "HEAD_GROUP": head_group,
        "SOFTMAX": softmax,
        "SOFTCAP": softcap,
        "SINKS": sinks,
    }
    return _compile_named(forward_kernel, types, constants)


def compile_backward(
    head_dim: int = 128,
    dtype: str = "bf16",
    *,
    head_group: int = 1,
    softmax: bool = True,
    softcap: bool = False,
    with_dq: bool = True,
) -> Report:
    """The backward kernel as ``backward.backward`` launches it."""
    rows = block_q(head_dim)
    types = ARRAYS | SCALES | LENGTHS | {"dq_sum": "*fp32"}
    types["query_tma"] = types["grad_tma"] = _tile_type(4, rows, head_dim, dtype)
    types["key_tma"] = types["value_tma"] = _tile_type(4, 128, head_dim, dtype)
    types["dk_tma"] = types["dv_tma"] = _tile_type(3, 64, head_dim, dtype)
    types["lse_tma"] = types["delta_tma"] = f"tensordesc<fp32[64],{ROW_LAYOUT!r}>"
    constants = {
        "Q_TILE": 128,
        "BLOCK_Q": rows,
        "HEAD_DIM": head_dim,
        "HEAD_GROUP": head_group,
        "SOFTMAX": softmax,
        "SOFTCAP": softcap,
        "WITH_DQ": with_dq,
    }
    return _compile_named(backward_kernel, types, constants)


def compile_query_gradient(
    head_dim: int = 128, dtype: str = "bf16", *, head_group: int = 1, softmax: bool = True, softcap: bool = False
) -> Report:
    """The deterministic gradient of the queries."""
    types = ARRAYS | SCALES | LENGTHS | {"base2_lse": "*fp32", "delta": "*fp32"}
    types["query_tma"] = types["grad_tma"] = _tile_type(4, 64, head_dim, dtype)
    types["key_tma"] = types["value_tma"] = _tile_type(4, BLOCK_K.value, head_dim, dtype)
    types["dq_tma"] = _tile_type(3, 64, head_dim, dtype)
    constants = {
        "KV_TILE": 128,
        "HEAD_DIM": head_dim,
        "HEAD_GROUP": head_group,
        "SOFTMAX": softmax,
        "SOFTCAP": softcap,
    }
    return _compile_named(query_gradient_kernel, types, constants)


def _compile_named(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any]) -> Report:
    wanted = set(kernel.arg_names) - set(constants)
    return compile_kernel(kernel, {name: value for name, value in types.items() if name in wanted}, constants)


def main() -> None:
    """Print the report of every kernel at both head dimensions."""
    for head_dim in (128, 64):
        for compile_one in (compile_forward, compile_backward, compile_query_gradient):
            name = compile_one.__name__.removeprefix("compile_")
            print(f"{name}, head dimension {head_dim}:\n    {compile_one(head_dim)}", flush=True)


if __name__ == "__main__":
    main()
