"""The Blackwell kernels compiled ahead of time for sm_100, as the chip would get them: PTX and machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels.blackwell import TILES  # noqa: E402
from cmask_lab.kernels.blackwell.backward import LAUNCH_OPTIONS, STEP, key_gradient_kernel  # noqa: E402
from cmask_lab.kernels.blackwell.forward import forward_kernel, launch_options  # noqa: E402
from cmask_lab.kernels.blackwell.query_gradient import query_gradient_kernel  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

SHARED_BYTES = 227 * 1024
"""Shared memory of one program, CUDA programming guide, table of compute capabilities."""
TENSOR_MEMORY_COLUMNS = 512
"""Tensor memory of one multiprocessor, PTX manual, tcgen05. A kernel that needs more can't be launched."""
STACK_BYTES = 64
"""A few scalars, such as list bounds, that a thread keeps in memory. A tile of sums or scores would take hundreds."""
ELEMENTS = {"lse": "*fp32", "lse2": "*fp32", "delta": "*fp32", "scale": "fp32"}
LISTS = ("run_ptr", "run_start", "run_stop", "partial_ptr", "partial_tile", "partial_pattern", "patterns", "order")


def compile_ahead(kernel, tile, head, dtype, rows, options, capability=100):
    """The kernel for one kind of chip; ``rows`` by the name of the tensor that TMA moves."""
    names = kernel.arg_names
    constants = {"Q_TILE": tile[0], "KV_TILE": tile[1], "HEAD": head, "STEP": STEP}
    constants = {name: value for name, value in constants.items() if name in names}
    types = dict.fromkeys(names, "i32") | dict.fromkeys((*LISTS, "mask_index"), "*i32") | ELEMENTS
    types |= dict.fromkeys(constants, "constexpr")
    for name, count in rows.items():
        written = name == "out" or name in ("grad_q", "grad_k", "grad_v")
        leading = "1" if written else "1, 1"
        types[f"{name}_tensor"] = f"tensordesc<{dtype}[{leading}, {count}, {head}]>"
    source = ASTSource(
        kernel,
        signature={name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types[name].startswith("*")},
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def compile_forward(tile, head, dtype, **target):
    rows = {"q": tile[0], "k": tile[1], "v": tile[1], "out": tile[0]}
    return compile_ahead(forward_kernel, tile, head, dtype, rows, launch_options(tile[1]), **target)


def compile_key_gradient(tile, head, dtype, **target):
    rows = {"q": STEP, "grad_out": STEP, "k": tile[1], "v": tile[1], "grad_k": tile[1], "grad_v": tile[1]}
    return compile_ahead(key_gradient_kernel, tile, head, dtype, rows, LAUNCH_OPTIONS, **target)


def compile_query_gradient(tile, head, dtype, **target):
    rows = {"q": tile[0], "grad_out": tile[0], "k": STEP, "v": STEP, "grad_q": tile[0]}
    return compile_ahead(query_gradient_kernel, tile, head, dtype, rows, LAUNCH_OPTIONS, **target)


def stack_bytes(cubin: bytes, folder: Path) -> int:
    """What a thread keeps in memory because it has no register for it, by the machine code."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    usage = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    return max(int(size) for size in re.findall(r"STACK:(\d+)", usage))


def check(compiled, folder: Path, *, products: int, loads: int, stores: int) -> None:
    """It uses what the chip has, in warps of different kinds, and fits; at least so many operations of each kind."""
    ptx = compiled.asm["ptx"]
    assert len(re.findall(r"tcgen05\.mma", ptx)) >= products
    assert re.search(r"tcgen05\.alloc", ptx)
    assert re.search(r"tcgen05\.ld", ptx)
    assert len(re.findall(r"cp\.async\.bulk\.tensor\S*\.shared\S*\.global", ptx)) >= loads
    assert len(re.findall(r"cp\.async\.bulk\.tensor\S*\.global\.shared", ptx)) >= stores
    assert "setmaxnreg" in ptx
    assert "mma.sync" not in ptx
    assert compiled.metadata.shared <= SHARED_BYTES
    assert compiled.metadata.tmem_size <= TENSOR_MEMORY_COLUMNS
    assert stack_bytes(compiled.asm["cubin"], folder) <= STACK_BYTES


every_kind = pytest.mark.parametrize(
    ("tile", "head", "dtype"),
    [(tile, head, dtype) for tile in TILES for head in (64, 128) for dtype in ("bf16", "fp16")],
    ids=str,
)
# A product in steps of 16 along the axis that is summed, in each of two loops.


@every_kind
def test_forward(tile, head, dtype, tmp_path):
    products = 2 * (head // 16 + tile[1] // 16)  # S, P V
    check(compile_forward(tile, head, dtype), tmp_path, products=products, loads=5, stores=1)


@every_kind
def test_key_gradient(tile, head, dtype, tmp_path):
    products = 2 * 2 * (head // 16 + STEP // 16)  # S and dP, dV and dK
    check(compile_key_gradient(tile, head, dtype), tmp_path, products=products, loads=6, stores=2)


@every_kind
def test_query_gradient(tile, head, dtype, tmp_path):
    products = 2 * (2 * head // 16 + STEP // 16)  # S and dP, dQ
    check(compile_query_gradient(tile, head, dtype), tmp_path, products=products, loads=6, stores=1)


@pytest.mark.parametrize("compile_one", [compile_forward, compile_key_gradient, compile_query_gradient])
def test_the_later_chip_of_this_kind(compile_one):
    """sm_103, which the registry gives to this backend as well."""
    assert "tcgen05.mma" in compile_one((128, 128), 128, "bf16", capability=103).asm["ptx"]
