"""The throughput panel without a browser: settings, what it says about a report, its life, and what it refuses."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="needs anywidget")

from cmask_lab.widgets import throughput
from cmask_lab.widgets.studio import PANELS, Studio
from cmask_lab.widgets.throughput import Throughput
from cmask_lab.widgets.throughput_settings import Settings, SettingsError
from cmask_lab.widgets.throughput_view import headline, view

import cmask_lab as cm
from cmask_lab.bench.device import Conditions
from cmask_lab.bench.flops import Rates
from cmask_lab.bench.process import BenchmarkProcess, Worker
from cmask_lab.bench.report import Case, Check, Entry, Loop, Report

FRONTEND = Path(__file__).parents[2] / "widgets" / "frontend"
NODE = shutil.which("node")

NAMES = ("cmask", "sdpa-dense", "flex-cpu", "flex-fa4", "flex-triton")
HERE = {
    "devices": [{"id": "cpu", "kind": "cpu", "name": "a processor", "detail": "CPU"}],
    "contenders": [{"name": name, "ours": name == "cmask", "about": "", "absent": {}} for name in NAMES],
    "versions": {},
    "no_gpu": "none was found",
    "problem": "",
}
WITH_GPU = {**HERE, "devices": [{"id": "cuda:0", "kind": "cuda", "name": "a GPU", "detail": "sm_90"}, *HERE["devices"]]}


class ScriptedWorker(Worker):
    """Takes requests and delivers what a test tells it to; no process is started."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[BenchmarkProcess] = []
        self.closed = False

    def submit(self, work: BenchmarkProcess) -> None:
        if self.taken and self.taken[-1].running:
            self.taken[-1]._deliver({"event": "cancelled"})
        self.taken.append(work)
        work._deliver({"event": "started", "pid": 1})

    def cancel(self, work: BenchmarkProcess) -> None:
        work._deliver({"event": "cancelled"})

    def close(self) -> None:
        self.closed = True

    def tell(self, **event: Any) -> None:
        self.taken[-1]._deliver(event)


def entry(name: str, samples: tuple[float, ...], direction: str = "forward", **changes: Any) -> Entry:
    check = Check({"out": 1e-3}, {"out": 2e-3}, proved_rows=64)
    made = Entry(name, direction, "ok", samples_ms=samples, plan_ms=1.0, first_ms=2.0, host_ms=0.1, check=check)
    return replace(made, **changes)


def case(*entries: Entry, conditions: Conditions | None = None, stopped: str = "spread below 0.3%") -> Case:
    rounds = max((len(e.samples_ms) for e in entries), default=0)
    loop = Loop("forward", rounds, 4, 12.0, stopped, 2, conditions or Conditions(watched=True))
    return Case(
        "causal",
        "causal",
        cm.causal().spec(),
        1,
        2,
        2,
        32,
        256,
        256,
        "float32",
        65_792,
        rates=Rates(1.0, 100.0),
        ours=("cmask",),
        entries=entries,
        loops=(loop,),
    )


def report(*cases: Case, done: bool = True, doing: str = "") -> Report:
    return Report(
        {"type": "cpu", "name": "a processor"}, {"torch": "2"}, "2026-12-01T00:00:00+00:00", cases, done, 1.0, doing
    )


FAST, SLOW = (1.0, 1.02, 0.99, 1.01, 1.0, 1.0), (2.0, 2.04, 1.98, 2.02, 2.0, 2.0)
OURS, THEIRS = entry("cmask", FAST), entry("sdpa-dense", SLOW)


def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def worker() -> ScriptedWorker:
    return ScriptedWorker()


@pytest.fixture
def panel(worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Throughput]:
    monkeypatch.setattr(throughput.machine, "look", lambda: HERE)
    made = Throughput(cm.causal(), 4096, worker=worker)
    made.look()
    until(lambda: made.machine)
    yield made
    made.close()


# What is measured


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (7, "an object is expected"),
        ({"heat": 1}, "unknown field 'heat'"),
        ({"heads": 0}, "heads is 0; an integer in 1 … 4096"),
        ({"heads": True}, "heads is True"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads is 3; a divisor of heads, 4"),
        ({"device": "cuda"}, 'device is \'cuda\'; "cpu" or "cuda:N"'),
        ({"device": ["cpu"]}, "device is ['cpu']"),
        ({"dtype": "float8"}, "one of bfloat16, float16, float32"),
        ({"direction": None}, "direction is None"),
        ({"contenders": "cmask"}, "different names"),
        ({"contenders": ["cmask", {}]}, "different names"),
        ({"contenders": ["cmask", "cmask"]}, "different names"),
        ({"contenders": ["sdpa-dense"]}, "none of ours"),
        ({"tokens": 0}, "tokens is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"auto": 1}, "auto is 1; true or false"),
        ({"recorded": "../secret"}, "recorded is '../secret'"),
        ({"case": -1}, "case is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(message: Any, words: str) -> None:
    with pytest.raises(SettingsError, match="settings: ") as refused:
        Settings.read(message)
    assert words in str(refused.value)


def test_settings_come_back_from_their_message() -> None:
    settings = Settings(heads=8, kv_heads=2, contenders=("cmask", "flex-cpu"), auto=True, tokens=None)
    assert Settings.read(json.loads(json.dumps(settings.message()))) == settings


def test_a_request_measures_the_first_tokens_and_says_so() -> None:
    mask = cm.documents([1500, 2596]) & cm.causal()
    request = Settings().request(mask, 4096, 4096)
    assert request["seq_len"] == 2048
    measured = cm.from_spec(request["mask"])
    assert (measured.to_dense(2048) == mask.to_dense(4096)[:2048, :2048]).all()
    assert measured.node["name"].endswith("first 2,048 tokens")
    assert Settings(tokens=None).request(cm.causal(), 64, 64)["mask"]["mask"]["type"] == "causal"
    assert (request["ours"], request["baselines"]) == (["cmask"], ["sdpa-dense", "flex-cpu"])


@pytest.mark.parametrize("plane", [(64, 32, 0), (64, 128, 64), (64, 128, 0)])
def test_a_plane_that_cannot_be_measured_is_refused(plane: tuple[int, int, int]) -> None:
    with pytest.raises(SettingsError, match="as many queries as keys"):
        Settings(tokens=None).request(cm.causal(), *plane)


# What is said


@pytest.mark.parametrize(
    ("measured", "tone", "words"),
    [
        (case(OURS, THEIRS), "faster", "cmask is faster than sdpa-dense: 2.00× [2.00, 2.00]"),
        (case(entry("cmask", SLOW), entry("sdpa-dense", FAST)), "slower", "cmask is slower than sdpa-dense: 0.500×"),
        (case(OURS, entry("sdpa-dense", FAST)), "close", "too close to call: 1.00× [1.00, 1.00]"),
        (case(OURS, THEIRS, stopped=""), "waiting", "6 rounds so far"),
        (case(OURS, THEIRS, conditions=Conditions(True, ("slowed by heat",))), "none", "disturbed: slowed by heat"),
        (case(OURS, THEIRS, conditions=Conditions(True, ("the SM clock fell by 12%",))), "none", "clock fell"),
        (case(OURS, THEIRS, conditions=Conditions(True, ("1 other process on the GPU",))), "none", "1 other process"),
        (case(replace(OURS, status="wrong", reason="out is off"), THEIRS), "none", "cmask failed its check"),
        (case(OURS, replace(THEIRS, status="wrong", reason="out is off")), "none", "sdpa-dense failed its check"),
        (case(OURS, replace(THEIRS, status="absent", reason="no memory")), "none", "sdpa-dense did not run: no memory"),
        (case(entry("cmask", FAST[:4]), entry("sdpa-dense", SLOW[:4])), "none", "too few rounds: 4, and 6 are"),
        (case(replace(OURS, status="waiting"), THEIRS), "waiting", "Preparing"),
        (case(OURS), "none", "sdpa-dense was not among the contenders"),
    ],
)
def test_a_headline_stands_only_on_sound_results(measured: Case, tone: str, words: str) -> None:
    said = headline(measured, "forward", "sdpa-dense")
    assert said["tone"] == tone
    assert words.replace("2.00", "2").replace("1.00", "1").replace("0.500", "0.5") in said["text"]
    if tone == "none":
        assert said["text"].startswith("No headline: ")


def test_a_view_tells_rates_quartiles_ratios_floor_first_results_and_checks() -> None:
    shown = view(report(case(OURS, THEIRS)), baseline="sdpa-dense")["directions"][0]
    ours, theirs = shown["entries"]
    assert ours["summary"]["tflops"][1] == pytest.approx(4 * 65_792 * 32 / 1.0 / 1e9, rel=1e-4)
    assert ours["summary"]["tflops"][0] <= ours["summary"]["tflops"][1] <= ours["summary"]["tflops"][2]
    assert (ours["ratio"]["verdict"], theirs["ratio"]) == ("faster", None)
    assert ours["summary"]["floors"] == pytest.approx(1.0 / shown["floor_ms"], rel=1e-3)
    assert (ours["cold_ms"], ours["plan_ms"], ours["first_ms"]) == (3.0, 1.0, 2.0)
    assert ours["check"]["passed"]
    assert "1.0e-03 ≤ 2.0e-03" in ours["check"]["text"]
    assert len(ours["series"]) == len(FAST)
    assert len(shown["loop"]["drift"]) == 6
    assert shown["loop"]["warmup_rounds"] == 4


def test_no_contender_is_called_faster_in_a_disturbed_run() -> None:
    disturbed = case(OURS, THEIRS, conditions=Conditions(True, ("slowed by heat",)))
    shown = view(report(disturbed), baseline="sdpa-dense")["directions"][0]
    assert shown["entries"][0]["ratio"]["verdict"] == "spoiled"
    assert shown["loop"]["spoiled"] == ["slowed by heat"]


def test_a_view_is_strict_json_whatever_the_state_of_the_report() -> None:
    partial = case(
        replace(OURS, samples_ms=(), check=None, plan_ms=None), replace(THEIRS, status="waiting", samples_ms=())
    )
    for each in (report(), report(replace(partial, loops=(), rates=None)), report(case(OURS, THEIRS), done=False)):
        json.dumps(view(each, baseline="sdpa-dense", case=5), allow_nan=False)


# The panel's life


def test_results_stream_in_and_the_last_report_stays(panel: Throughput, worker: ScriptedWorker) -> None:
    panel.start()
    assert panel.status["state"] == "running"
    worker.tell(event="report", report=report(case(OURS, THEIRS, stopped=""), done=False, doing="round 6").to_dict())
    until(lambda: panel.status["doing"] == "round 6")
    assert panel.results["directions"][0]["headline"]["tone"] == "waiting"
    worker.tell(event="report", report=report(case(OURS, THEIRS)).to_dict())
    worker.tell(event="done")
    assert panel.wait(5) == panel.report
    assert panel.report == report(case(OURS, THEIRS))
    assert panel.status["state"] == "done"
    assert panel.results["directions"][0]["headline"]["tone"] == "faster"


def test_the_browser_hears_four_times_a_second_at_most(panel: Throughput, worker: ScriptedWorker) -> None:
    heard: list[float] = []
    panel.start()
    panel.observe(lambda change: heard.append(time.monotonic()), "results")
    began = time.monotonic()
    number = 0
    while time.monotonic() < began + 1.2:
        number += 1
        shown = report(case(OURS, replace(THEIRS, host_ms=number)), done=False)
        worker.tell(event="report", report=shown.to_dict())
        time.sleep(0.005)
    assert number > 50
    assert 2 <= len(heard) <= 6


def test_a_newer_start_takes_the_place_of_an_older_one(panel: Throughput, worker: ScriptedWorker) -> None:
    panel.start()
    panel.configure(heads=2, kv_heads=2)
    panel.start()
    first, second = worker.taken
    assert (first.running, second.running, second.request["heads"]) == (False, True, 2)
    first._deliver({"event": "report", "report": report(case(OURS)).to_dict()})
    worker.tell(event="report", report=report(case(OURS, THEIRS)).to_dict())
    worker.tell(event="done")
    assert len(panel.wait(5).case.entries) == 2
    assert panel.status["state"] == "done"


@pytest.mark.parametrize(
    ("kind", "advice"), [("OutOfMemoryError", "fewer heads"), ("Crash", "fresh process"), ("RuntimeError", "")]
)
def test_an_error_is_shown_and_recovered_from(
    panel: Throughput, worker: ScriptedWorker, kind: str, advice: str
) -> None:
    panel.start()
    worker.tell(event="error", kind=kind, message="it broke")
    with pytest.raises(RuntimeError, match=f"{kind}: it broke"):
        panel.wait(5)
    assert panel.status["state"] == "failed"
    assert advice in panel.status["error"]["advice"]
    panel.start()
    worker.tell(event="report", report=report(case(OURS)).to_dict())
    worker.tell(event="done")
    assert panel.wait(5).case.ours == ("cmask",)


def test_stop_keeps_what_has_come(panel: Throughput, worker: ScriptedWorker) -> None:
    panel.start()
    worker.tell(event="report", report=report(case(OURS, THEIRS, stopped=""), done=False).to_dict())
    until(lambda: panel.results)
    panel.stop()
    assert panel.status["state"] == "stopped"
    assert not worker.taken[0].running
    assert panel.wait(1).case.title == "causal"
    assert panel.results["directions"]


def test_auto_measures_once_when_the_mask_has_settled(
    panel: Throughput, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "SETTLED_S", 0.1)
    panel.show_mask(cm.window(8), 4096)
    time.sleep(0.2)
    assert worker.taken == []
    panel.configure(auto=True)
    for width in (16, 32, 64):
        panel.show_mask(cm.window(width), 4096)
    until(lambda: worker.taken)
    time.sleep(0.2)
    assert [cm.from_spec(work.request["mask"]).node["left"] for work in worker.taken] == [64]
    panel.show_mask(cm.window(64), 4096)
    time.sleep(0.2)
    assert len(worker.taken) == 1


def test_results_of_an_earlier_mask_are_marked(panel: Throughput, worker: ScriptedWorker) -> None:
    panel.start()
    worker.tell(event="report", report=report(case(OURS)).to_dict())
    worker.tell(event="done")
    panel.wait(5)
    assert not panel.plane["stale"]
    panel.show_mask(cm.window(8), 4096)
    assert panel.plane["stale"]


def test_a_plane_out_of_reach_is_said_before_anybody_starts(panel: Throughput, worker: ScriptedWorker) -> None:
    panel.show_mask(cm.causal(), 1024, 4096, 3072)
    assert "as many queries as keys" in panel.plane["why_not"]
    with pytest.raises(SettingsError, match="as many queries as keys"):
        panel.start()
    assert worker.taken == []


def test_copies_have_every_field(panel: Throughput, worker: ScriptedWorker) -> None:
    with pytest.raises(SettingsError, match="nothing has been measured"):
        panel.copy()
    panel.start()
    worker.tell(event="report", report=report(case(OURS, THEIRS)).to_dict())
    worker.tell(event="done")
    panel.wait(5)
    kept = json.loads(panel.copy("json"))
    assert Report.from_dict(kept["report"]) == panel.report
    assert Settings.read(kept["settings"]) == panel.settings
    assert panel.copy("json") in panel.copy("markdown")
    assert "| contender" in panel.copy("markdown")
    with pytest.raises(SettingsError, match="'csv' is not one of"):
        panel.copy("csv")


# Messages from the browser


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (None, "an object is expected"),
        ([1], "an object is expected"),
        ({"shutdown": {"n": 1, "value": 1}}, "'shutdown' is not a number and a value of settings, command, copy"),
        ({"command": "start"}, "'command' is not"),
        ({"command": {"n": 1, "value": "explode"}}, "'explode' is not one of look, start, stop"),
        ({"command": {"n": 1, "value": ["start"]}}, "is not one of"),
        ({"settings": {"n": 1, "value": {"heads": "many"}}}, "heads is 'many'"),
        ({"settings": {"n": 1, "value": {"device": "cuda:3"}}}, "device is 'cuda:3'; there are cpu"),
        ({"settings": {"n": 1, "value": {"contenders": ["cmask", "magic"]}}}, "'magic'; there are cmask, sdpa-dense"),
        ({"settings": {"n": 1, "value": {"recorded": "h900"}}}, "no recorded reports"),
        ({"copy": {"n": 1, "value": {}}}, "{} is not one of 'json', 'markdown'"),
    ],
)
def test_a_malformed_message_is_refused_and_the_panel_lives(
    panel: Throughput, worker: ScriptedWorker, asks: Any, words: str
) -> None:
    before = panel.settings
    panel.recorded = []
    panel.set_state({"asks": asks})
    assert panel.problem.startswith("The message was refused.")
    assert words in panel.problem
    assert panel.settings == before
    panel.set_state({"asks": {"command": {"n": "later", "value": "start"}}})
    assert (panel.problem, len(worker.taken)) == ("", 1)


def test_each_message_acts_once_and_settings_come_before_the_command(panel: Throughput, worker: ScriptedWorker) -> None:
    wanted = {**panel.settings.message(), "heads": 2, "kv_heads": 1}
    asks = {"command": {"n": "a:2", "value": "start"}, "settings": {"n": "a:1", "value": wanted}}
    panel.set_state({"asks": asks})
    panel.set_state({"asks": {**asks, "copy": {"n": "a:3", "value": "json"}}})
    assert [work.request["kv_heads"] for work in worker.taken] == [1]
    assert panel.answers["settings"] == {"n": "a:1"}
    assert "nothing has been measured" in panel.answers["copy"]["error"]


def test_another_device_brings_its_own_settings(worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput.machine, "look", lambda: WITH_GPU)
    panel = Throughput(cm.causal(), 4096, worker=worker)
    panel.look()
    until(lambda: panel.machine)
    assert (panel.settings.device, panel.settings.baseline, panel.settings.tokens) == ("cuda:0", "flex-fa4", None)
    value = {**panel.settings.message(), "device": "cpu", "direction": "both"}
    panel.set_state({"asks": {"settings": {"n": 1, "value": value}}})
    assert (panel.settings.device, panel.settings.dtype, panel.settings.tokens) == ("cpu", "float32", 2048)
    panel.close()


def test_messages_from_many_threads_leave_one_run(panel: Throughput, worker: ScriptedWorker) -> None:
    def send(name: str) -> None:
        for n in range(10):
            panel.set_state({"asks": {"command": {"n": f"{name}:{n}", "value": "start"}}})
            panel.show_mask(cm.window(n + 1), 4096)

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert [work.running for work in worker.taken].count(True) == 1
    assert worker.taken[-1].running


# Recorded results


def test_recorded_results_are_marked_as_such(worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = replace(report(case(OURS, THEIRS), case(OURS)), device={"type": "cuda", "name": "NVIDIA H200"})
    monkeypatch.setattr(throughput, "recorded_names", lambda: ["h200"])
    monkeypatch.setattr(throughput, "_recorded", lambda name: kept)
    panel = Throughput(cm.causal(), 4096, worker=worker)
    assert panel.recorded == [{"name": "h200", "label": "h200 (NVIDIA H200)"}]
    panel.configure(recorded="h200", case=1)
    shown = panel.results
    assert (shown["recorded"], shown["device"]["name"], shown["created"][:10]) == ("h200", "NVIDIA H200", "2026-12-01")
    assert (shown["case"], len(shown["cases"]), shown["versions"]) == (1, 2, {"torch": "2"})
    assert Report.from_dict(json.loads(panel.copy())["report"]) == kept
    assert {part["baseline"] for part in shown["directions"]} == {"sdpa-dense"}
    panel.configure(case=0, baseline="flex-cpu")
    assert panel.results["directions"][0]["headline"]["tone"] == "faster"
    panel.configure(recorded="")
    assert panel.results == {}
    panel.close()


# The Studio around it, and the real thing


def test_the_studio_has_the_panel_follows_its_mask_and_closes_it() -> None:
    assert throughput.panel in PANELS
    made: list[Throughput] = []

    def keep(studio: Studio) -> Throughput:
        made.append(throughput.panel(studio))
        return made[0]

    studio = Studio(cm.causal(), 1024, panels=(keep,), autosave=None)
    studio.mask = cm.window(16)
    assert made[0]._plane == (cm.window(16), 1024, 1024, 0)
    studio.close()
    assert made[0]._closed
    with pytest.raises(RuntimeError, match="closed"):
        made[0].start()


def test_a_real_process_measures_and_ends_with_the_panel() -> None:
    panel = Throughput(cm.causal(), 256, worker=Worker())
    panel.configure(heads=1, kv_heads=1, head_dim=16, contenders=("cmask",), baseline="cmask", seconds=30)
    panel.start()
    measured = panel.wait(50).case.entry("cmask", "forward")
    assert (measured.status, measured.check.passed) == ("ok", True)
    assert panel.results["directions"][0]["entries"][0]["check"]["passed"]
    assert {device["id"] for device in panel.machine["devices"]} >= {"cpu"}
    process = panel._worker._child.process
    panel.close()
    assert process.poll() is not None
