"""Compile a kernel for sm_90 without a GPU and read what ptxas says about it.

``python -m cmask_lab.kernels.hopper.compile_ahead`` prints the report of every variant: the questions that cost no device
time. A report that shows spills, or wgmma that ptxas had to serialise (C7510 and following), explains a slow kernel.
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
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource


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


def compile_kernel(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], num_warps: int = 4
) -> Report:
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
