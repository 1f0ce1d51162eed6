"""Operations, bytes and floors, against counts made another way."""

from __future__ import annotations

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import flops


def test_flops_count_visible_pairs() -> None:
    pairs = int(cm.causal().to_dense(64).sum())
    # Two products of a multiply and an add for every pair and dimension forward; five backward.
    assert flops.attention_flops(pairs, 16, "forward") == pairs * 16 * 2 * 2
    assert flops.attention_flops(pairs, 16, "backward") == pairs * 16 * 2 * 5
    assert flops.attention_flops(pairs, 16, "backward") == 2.5 * flops.attention_flops(pairs, 16, "forward")


def test_the_figures_that_this_project_states() -> None:
    """Causal, 32,768 tokens, 16 heads, D=128: 6.67 ms are 659 TFLOP/s, and the floor at 790 TFLOP/s is 5.57 ms."""
    pairs = 16 * 32768 * 32769 // 2
    assert flops.tflops(pairs, 128, "forward", 6.67) == pytest.approx(659, abs=0.5)
    rates = flops.Rates(790.0, 4300.0)
    moved = flops.attention_bytes(1, 16, 16, 32768, 32768, 128, 2, "forward")
    assert flops.floor_ms(flops.attention_flops(pairs, 128, "forward"), moved, rates) == pytest.approx(5.57, abs=0.01)


def test_bytes_follow_the_tensors() -> None:
    q, k = torch.empty(2, 8, 96, 64, dtype=torch.bfloat16), torch.empty(2, 2, 128, 64, dtype=torch.bfloat16)
    lse = 4 * 2 * 8 * 96
    forward = 2 * q.nbytes + 2 * k.nbytes + lse
    assert flops.attention_bytes(2, 8, 2, 96, 128, 64, 2, "forward") == forward
    # Reads q, k, v, out, its gradient and lse; writes dq, dk, dv.
    assert flops.attention_bytes(2, 8, 2, 96, 128, 64, 2, "backward") == 4 * q.nbytes + 4 * k.nbytes + lse


def test_traffic_can_be_the_floor() -> None:
    assert flops.floor_ms(1.0, 4_000_000, flops.Rates(100.0, 4.0)) == 1.0


def test_an_unknown_direction_is_named() -> None:
    with pytest.raises(ValueError, match="'sideways' is not one of 'forward', 'backward'"):
        flops.attention_flops(1, 1, "sideways")


def test_rates_are_measured() -> None:
    rates = flops.measure_rates(torch.device("cpu"), torch.float32)
    assert 1e-4 < rates.matrix_tflops < 100
    assert 0.05 < rates.bandwidth_gbs < 5000
