"""The whole benchmark at a small size on the CPU: what is reported, and what happens to contenders that can't run."""

from __future__ import annotations

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import contenders, measurement, subjects
from cmask_lab.bench.contenders.contender import Natural, Setting
from cmask_lab.bench.flops import Rates
from tests.bench.small_runs import measure


class Stub(Natural):
    """A contender that does what a test wants."""

    def __init__(self, name: str, out=None, fails: Exception | None = None) -> None:
        self.name, self.out, self.fails = name, out, fails

    def absent(self, setting: Setting) -> str | None:
        return None

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise self.fails
        return self.out(q, k, v)


def with_stub(monkeypatch: pytest.MonkeyPatch, stub: Stub) -> None:
    make = contenders.make
    monkeypatch.setattr(contenders, "make", lambda name: stub if name == stub.name else make(name))


def test_the_floor_is_what_the_device_reached_before_or_after(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([Rates(1.0, 30.0), Rates(2.0, 20.0)])
    monkeypatch.setattr(measurement, "measure_rates", lambda device, dtype: next(rates))
    assert measure(cm.causal()).case.rates == Rates(2.0, 30.0)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_everybody_is_checked_and_timed_in_the_same_rounds(direction: str) -> None:
    report = measure(cm.documents([100, 92]) & cm.causal(), direction=direction, kv_heads=1)
    case = report.case
    assert report.done
    assert report.progress == 1.0
    assert case.directions == (("forward", "backward") if direction == "both" else (direction,))
    for each in case.directions:
        ours, dense = case.entry("cmask", each), case.entry("sdpa-dense", each)
        assert ours.status == dense.status == "ok"
        assert len(ours.samples_ms) == len(dense.samples_ms) == 6
        assert ours.check is not None
        assert ours.check.passed
        assert ours.check.proved_rows == 2 * 192
        assert set(ours.check.errors) == ({"out"} if direction == "forward" else {"out", "dq", "dk", "dv"})
        assert ours.first_ms is not None
        assert dense.visited_pairs == 2 * 192 * 192
        assert case.visible_pairs <= (ours.visited_pairs or 0) <= dense.visited_pairs
        (comparison,) = case.comparisons(each)
        assert (comparison.ours, comparison.baseline, comparison.ratio.n) == ("cmask", "sdpa-dense", 6)
        loop = case.loop(each)
        assert loop is not None
        assert (loop.rounds, loop.warmup_rounds, loop.stopped) == (6, 1, "limit of 6 rounds")
    first = case.entry("cmask", case.directions[0])
    assert first.plan_ms is not None
    assert first.cold_ms == first.plan_ms + (first.first_ms or 0)


def test_visible_pairs_are_counted_over_batch_and_heads() -> None:
    masks = [cm.causal(), cm.window(3)]
    report = measure(cm.per_head(masks), batch=2)
    assert report.case.visible_pairs == 2 * sum(int(m.to_dense(192).sum()) for m in masks)
    assert report.case.entry("cmask", "forward").status == "ok"
    assert report.case.entry("sdpa-dense", "forward").status == "ok"


def test_tflops_are_two_columns() -> None:
    case = measure(cm.window(10)).case
    entry = case.entry("sdpa-dense", "forward")
    assert entry.summary is not None
    assert case.tflops(entry) == pytest.approx(4 * case.visible_pairs * 32 / entry.summary.median / 1e9)
    assert case.visited_tflops(entry) == pytest.approx(4 * 2 * 192**2 * 32 / entry.summary.median / 1e9)


def test_a_baseline_that_cannot_run_says_why() -> None:
    entries = {
        e.contender: e
        for e in measure(cm.prefix(5), baselines=[n for n in contenders.NAMES if n != "flex-cpu"]).case.entries
    }
    assert entries["flex-triton"].reason == "needs a CUDA GPU"
    assert entries["fa4"].status == "absent"
    assert entries["sdpa-dense"].status == "ok"


def test_an_order_that_does_not_help_is_absent() -> None:
    entry = measure(cm.causal(), ours=["cmask", "cmask+order"]).case.entry("cmask+order", "forward")
    assert (entry.status, entry.reason) == ("absent", "no token order is better than the natural one")


def test_orders_inside_the_call_and_kept() -> None:
    report = measure(
        cm.grid(64, 64).disk(8), seq_len=4096, ours=["cmask", "cmask+order", "cmask+kept"], baselines=[], heads=1
    )
    case = report.case
    assert {e.contender: e.status for e in case.entries} == dict.fromkeys(("cmask", "cmask+order", "cmask+kept"), "ok")
    assert "permuted inside the call" in case.entry("cmask+order", "forward").note
    visited = [e.visited_pairs or 0 for e in case.entries]
    assert visited[1] == visited[2] < visited[0], "the order must make fewer tiles"
    assert {c.baseline for c in case.comparisons("forward", "cmask+kept")} == {"cmask", "cmask+order"}


def test_silu_is_checked_against_silu() -> None:
    entry = measure(subjects.hstu(512), seq_len=512, ours=["cmask", "cmask+silu"], direction="both").case.entry(
        "cmask+silu", "backward"
    )
    assert entry.status == "ok"


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    with_stub(monkeypatch, Stub("sdpa-flash", without_mask))
    report = measure(cm.causal(), baselines=["sdpa-flash"])
    entry = report.case.entry("sdpa-flash", "forward")
    assert (entry.status, entry.samples_ms) == ("wrong", ())
    assert entry.reason == "query 0 of batch entry 0, head 0 does not see the keys that the mask shows it"
    assert "WRONG: query 0" in report.table()
    assert report.case.comparisons("forward") == []


def test_an_error_of_one_contender_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with_stub(
        monkeypatch,
        Stub("sdpa-flash", fails=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nmore")),
    )
    report = measure(cm.causal(), baselines=["sdpa-flash", "sdpa-dense"])
    entry = report.case.entry("sdpa-flash", "forward")
    assert (entry.status, entry.reason) == ("failed", "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB")
    assert report.case.entry("sdpa-dense", "forward").status == "ok"


def test_no_time_left_is_said() -> None:
    report = measure(cm.causal(), seconds=0.0)
    assert {e.reason for e in report.case.entries} == {"the 0 s of this run were over"}
    assert report.done


def test_a_contender_that_would_take_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "measure_rates", lambda device, dtype: Rates(1e-9, 1.0))
    report = measure(cm.causal())
    assert {e.status for e in report.case.entries} == {"absent"}
    assert "s at the least" in report.case.entries[0].reason
