"""On a GPU: the clock measures what the device does, and every contender that can run passes its check."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import contenders, run, subjects
from cmask_lab.bench.device import Monitor
from cmask_lab.bench.timing import CudaClock, Rules

pytestmark = pytest.mark.gpu

SHORT = Rules(warmup_rounds=2, warmup_ms=20, at_least=8, at_most=8)


@pytest.fixture
def clock() -> CudaClock:
    return CudaClock(torch.device("cuda"))


def test_time_is_that_of_the_device_not_of_the_host(clock: CudaClock) -> None:
    cycles = int(clock._cycles_per_ms)

    def slow_host() -> None:
        time.sleep(0.003)
        torch.cuda._sleep(cycles)

    calls = [partial(torch.cuda._sleep, cycles), slow_host]
    for _ in range(3):  # the cover takes its length from the round before
        device, host = clock.round(calls, lambda: None)
    assert device[0] == pytest.approx(1.0, rel=0.1)
    assert device[1] == pytest.approx(1.0, rel=0.1), "the launch was covered"
    assert host[1] > 3.0 > host[0]


def test_the_card_is_read_while_it_works() -> None:
    monitor = Monitor.for_device("cuda:0")
    assert not monitor.missing
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(50):
        a @ a
    monitor.sample()
    torch.cuda.synchronize()
    reading = monitor.readings[0]
    assert reading["sm_clock_mhz"] > 500
    assert reading["power_w"] > 50


# A baseline's own imports may warn: flash-attn-4 does, of TorchScript, under PyTorch 2.11.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("name", ["causal", "hstu-packed", "clear-r8"])
def test_every_contender_computes_the_mask(name: str, direction: str) -> None:
    report = run.benchmark(
        subjects.subject(name, 2048),
        heads=4,
        kv_heads=2,
        head_dim=64,
        direction=direction,
        baselines=contenders.CUDA_BASELINES,
        seconds=300,
        rules=SHORT,
    )
    for entry in report.case.entries:
        assert entry.status in ("ok", "absent"), f"{entry.contender}: {entry.reason}"
    assert report.case.entry("cmask", report.case.directions[0]).timed
    assert report.case.entry("flex-triton", report.case.directions[0]).timed


def test_a_long_mask_does_not_need_the_dense_one() -> None:
    """131,072 tokens: a dense mask alone would take 16 GiB."""
    torch.cuda.reset_peak_memory_stats()
    mask = cm.documents([4096] * 32) & cm.causal()
    report = run.benchmark(mask, heads=2, seq_len=131072, direction="both", baselines=[], rules=SHORT)
    assert report.case.entry("cmask", "backward").status == "ok"
    assert torch.cuda.max_memory_allocated() < 6 * 2**30
