"""The Hopper kernels compiled ahead of time for sm_90, as a GPU would get them; what the PTX and ptxas say of them."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels.hopper.compile_ahead import (
    Report,
    compile_backward,
    compile_forward,
    compile_query_gradient,
)

SHARED_BYTES = 232_448
"""Shared memory that one program may use on sm_90."""


def check(report: Report, *, products: int, loads: int, stores: int, registers: int = 240) -> None:
    """It uses what makes Hopper fast, fits, and was not serialised; at least so many operations of each kind."""
    assert report.count(r"wgmma\.mma_async\.sync\.aligned") >= products
    assert report.count(r"cp\.async\.bulk\.tensor\.\dd\.shared\S*\.global\S*mbarrier") >= loads
    assert report.count(r"cp\.async\.bulk\.tensor\.\dd\.global\.shared") >= stores
    assert report.count(rf"setmaxnreg\.inc\S*\s+{registers};")
    assert report.count(r"setmaxnreg\.dec\S*\s+24;")
    assert report.shared_bytes <= SHARED_BYTES
    assert not [line for line in report.warnings if "wgmma" in line]


FORWARD = {
    "128": {},
    "64": {"head_dim": 64},
    "half the keys in a tile, float16, grouped heads": {"tile": (128, 64), "dtype": "fp16", "head_group": 8},
    "softcap and sinks": {"softcap": True, "sinks": True},
    "silu": {"softmax": False},
    "silu, float16": {"softmax": False, "dtype": "fp16", "head_dim": 64},
}


@pytest.mark.parametrize("variant", FORWARD.values(), ids=FORWARD.keys())
def test_forward(variant):
    report = compile_forward(**variant)
    head_dim, kv_tile = variant.get("head_dim", 128), variant.get("tile", (128, 128))[1]
    # Both consumers: the scores of the first, of a masked and of an unmasked tile; their output, that of the last tile.
    check(report, products=2 * 3 * (head_dim // 16 + kv_tile // 16), loads=4, stores=2)
    assert report.spill_bytes == 0


def test_forward_with_three_consumers():
    report = compile_forward(64, tile=(192, 128))
    check(report, products=3 * 3 * (64 // 16 + 128 // 16), loads=5, stores=3, registers=160)
    assert report.spill_bytes == 0


def test_forward_with_one_consumer():
    report = compile_forward(tile=(64, 64))
    assert report.count(r"wgmma\.mma_async") >= 3 * (128 // 16 + 64 // 16)
    assert report.spill_bytes == 0
    assert report.shared_bytes <= SHARED_BYTES


BACKWARD = {
    "128": {},
    "64": {"head_dim": 64},
    "float16, grouped heads, softcap": {"dtype": "fp16", "head_group": 8, "softcap": True},
    "silu": {"softmax": False},
}


@pytest.mark.parametrize("variant", BACKWARD.values(), ids=BACKWARD.keys())
def test_backward(variant):
    report = compile_backward(**variant)
    # Five products: two of depth head_dim, dQ of depth 128 keys, two of the depth of a block of queries.
    head_dim = variant.get("head_dim", 128)
    parts = 1 if head_dim == 128 else 2
    check(report, products=2 * (2 * parts * head_dim // 16 + 128 // 16 + 2 * parts * 64 // 16), loads=6, stores=4)
    assert report.count(r"(?:atom|red)\.global\S*add\.v4\.f32") == 2 * 8
    # dK and dV alone take half the registers; what is spilled is read outside of the loop over queries.
    assert report.spill_bytes < 1024


def test_backward_without_the_gradient_of_the_queries_adds_to_nothing():
    assert not compile_backward(with_dq=False).count(r"(?:atom|red)\.global\S*add")


@pytest.mark.parametrize("variant", [{}, {"head_dim": 64}, {"softmax": False}], ids=["128", "64", "silu"])
def test_query_gradient(variant):
    report = compile_query_gradient(**variant)
    head_dim = variant.get("head_dim", 128)
    check(report, products=2 * (2 * head_dim // 16 + 64 // 16), loads=6, stores=2)
    assert report.spill_bytes == 0
