"""A benchmark in another process: its events, and what happens when it is cancelled, overtaken, wrong or dead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import cmask_lab as cm
from cmask_lab.bench import process
from cmask_lab.bench.process import BenchmarkProcess, Worker

PATIENT = 120.0
"""Seconds to wait for an event: the first one imports PyTorch on a machine that may be busy."""

REQUEST = {
    "mask": cm.causal().spec(),
    "seq_len": 128,
    "heads": 1,
    "head_dim": 16,
    "dtype": "float32",
    "device": "cpu",
    "baselines": ["sdpa-dense"],
    "seconds": 60,
    "rules": {"at_least": 4, "at_most": 4, "warmup_ms": 0},
}
ENDLESS = REQUEST | {"seconds": 600, "rules": {"at_least": 10**6, "at_most": 10**7, "seconds": 600}}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def wait_for_rounds(work: BenchmarkProcess) -> None:
    """Until the loop is under way."""
    for event in work.events(PATIENT):
        assert event["event"] in ("started", "report"), event
        if "round" in event.get("report", {}).get("doing", ""):
            return


def kinds(work: BenchmarkProcess) -> list[str]:
    return [event["event"] for event in work.events(PATIENT)]


def test_reports_come_until_it_is_done(worker: Worker) -> None:
    work = BenchmarkProcess(REQUEST, worker)
    events = list(work.events(PATIENT))
    assert [events[0]["event"], events[-1]["event"]] == ["started", "done"]
    reports = [event["report"] for event in events[1:-1]]
    assert [r["done"] for r in reports] == [False] * (len(reports) - 1) + [True]
    assert not work.running
    assert work.poll() == []


def test_the_process_stays_warm(worker: Worker) -> None:
    pids: list[Any] = []
    for _ in range(2):
        work = BenchmarkProcess(REQUEST, worker)
        pids.append(next(work.events(PATIENT))["pid"])
        report = work.report(PATIENT)
        assert report.done
        assert report.case.entry("cmask", "forward").status == "ok"
    assert pids[0] == pids[1]


def test_a_bad_request_is_an_error_event_and_the_process_lives(worker: Worker) -> None:
    events = list(BenchmarkProcess(REQUEST | {"heads": 0}, worker).events(PATIENT))
    assert events[-1]["kind"] == "ValueError"
    assert "heads: 0" in events[-1]["message"]
    no_mask = {k: v for k, v in REQUEST.items() if k != "mask"}
    with pytest.raises(RuntimeError, match="it has no 'mask'"):
        BenchmarkProcess(no_mask, worker).report(PATIENT)
    assert kinds(BenchmarkProcess(REQUEST, worker))[-1] == "done"


def test_a_newer_request_takes_over(worker: Worker) -> None:
    old = BenchmarkProcess(ENDLESS, worker)
    wait_for_rounds(old)
    new = BenchmarkProcess(REQUEST, worker)
    assert kinds(old)[-1] == "cancelled"
    events = list(new.events(PATIENT))
    assert events[-1]["event"] == "done"
    # No report of the old request strays into the new one.
    assert {len(e["report"]["cases"][0]["entries"]) for e in events if e["event"] == "report"} == {2}


def test_cancelling_ends_it_at_once(worker: Worker) -> None:
    work = BenchmarkProcess(ENDLESS, worker)
    wait_for_rounds(work)
    began = time.monotonic()
    work.cancel()
    assert kinds(work)[-1] == "cancelled"
    assert time.monotonic() - began < 1
    work.cancel()  # a second time is no error
    assert kinds(BenchmarkProcess(REQUEST, worker))[-1] == "done"


def test_a_process_that_dies_is_an_error_event_and_replaced(worker: Worker) -> None:
    work = BenchmarkProcess(ENDLESS, worker)
    wait_for_rounds(work)
    assert worker._child is not None
    worker._child.process.kill()
    *_, last = work.events(PATIENT)
    assert (last["event"], last["kind"]) == ("error", "Crash")
    assert "exit status" in last["message"]
    assert kinds(BenchmarkProcess(REQUEST, worker))[-1] == "done"


def test_a_process_that_does_not_listen_is_ended(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped like a compiler that can't be interrupted: after a while a fresh process takes the newer request."""
    import signal

    monkeypatch.setattr(process, "PATIENCE_S", 0.5)
    stuck = BenchmarkProcess(ENDLESS, worker)
    wait_for_rounds(stuck)
    assert worker._child is not None
    first = worker._child.process
    first.send_signal(signal.SIGSTOP)
    new = BenchmarkProcess(REQUEST, worker)
    assert kinds(stuck)[-1] == "cancelled"
    assert kinds(new)[-1] == "done"
    assert first.poll() is not None
    assert worker._child is not None
    assert worker._child.process.pid != first.pid


def test_waiting_has_a_limit(worker: Worker) -> None:
    work = BenchmarkProcess(ENDLESS, worker)
    wait_for_rounds(work)
    work.cancel()
    list(work.events(PATIENT))
    with pytest.raises(TimeoutError, match=r"no event for 0.05 s"):
        next(work.events(0.05))
