"""The Blackwell kernel without the chip: arithmetic in the interpreter, code compiled ahead of time for sm_100."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels.blackwell import BACKEND, TILES  # noqa: E402
from cmask_lab.kernels.blackwell.forward import forward_kernel, launch_options  # noqa: E402
from cmask_lab.kernels.registry import Problem  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

SHARED_BYTES = 227 * 1024
"""Shared memory of one program, CUDA programming guide, table of compute capabilities."""
LISTS = {name for name in forward_kernel.arg_names if name.startswith(("run_", "partial_"))}
LISTS |= {"patterns", "order", "mask_index"}


def test_cases_in_the_interpreter(root: Path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/kernels/blackwell_cases.py"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_uses_what_the_chip_has(tile, head, dtype):
    names = forward_kernel.arg_names
    constants = {"Q_TILE": tile[0], "KV_TILE": tile[1], "HEAD": head}
    types = {name: "*i32" if name in LISTS else "i32" for name in names} | dict.fromkeys(constants, "constexpr")
    types |= {"scale": "fp32", "lse": "*fp32", "out_tensor": f"tensordesc<{dtype}[1, {tile[0]}, {head}]>"}
    types |= {f"{name}_tensor": f"tensordesc<{dtype}[1, 1, {tile[name != 'q']}, {head}]>" for name in "qkv"}
    source = ASTSource(
        forward_kernel,
        signature={name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types[name].startswith("*")},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 100, 32), options=launch_options(tile[1]))
    ptx = compiled.asm["ptx"]
    # Two products a kv tile, in steps of 16, in each of two loops.
    assert len(re.findall(r"tcgen05\.mma", ptx)) >= 2 * (head // 16 + tile[1] // 16)
    assert re.search(r"tcgen05\.alloc", ptx)
    assert re.search(r"tcgen05\.ld", ptx)
    assert len(re.findall(r"cp\.async\.bulk\.tensor\S*\.shared\S*\.global", ptx)) >= 5
    assert re.search(r"cp\.async\.bulk\.tensor\S*\.global\.shared", ptx)
    assert "setmaxnreg" in ptx
    assert "mma.sync" not in ptx
    assert "st.local" not in ptx
    assert compiled.metadata.shared <= SHARED_BYTES


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
    assert BACKEND.unsupported(B200) is None
    assert reason in BACKEND.unsupported(Problem(**{**vars(B200), **change}))
