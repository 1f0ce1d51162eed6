"""What NVML says reaches the report: a stand-in plays the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cmask_lab.bench import device
from cmask_lab.bench.device import Conditions, Monitor


class Nvml:
    """Answers as a GPU would; ``raises`` names functions that this card does not know."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlClocksEventReasonSwPowerCap = 4
    nvmlClocksEventReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonHwSlowdown = 8

    class NVMLError(Exception):
        pass

    def __init__(self, **state: Any) -> None:
        self.state = {"sm": 1980, "mem": 3201, "power": 650_000, "temperature": 55, "reasons": 0, "pids": [os.getpid()]}
        self.state |= state

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetPowerUsage": lambda h: self.state["power"],
            "nvmlDeviceGetClockInfo": lambda h, kind: self.state["sm" if kind == 1 else "mem"],
            "nvmlDeviceGetTemperature": lambda h, kind: self.state["temperature"],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.state["reasons"],
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [SimpleNamespace(pid=p) for p in self.state["pids"]],
        }
        if name not in answers:
            raise AttributeError(name)
        if name in self.state.get("raises", ()):
            return self._unknown
        return answers[name]

    def _unknown(self, *arguments: Any) -> None:
        raise self.NVMLError("Not Supported")


def watched(*states: dict[str, Any], times: np.ndarray | None = None, monkeypatch: pytest.MonkeyPatch) -> Conditions:
    """Conditions after one reading in each state."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monitor = Monitor(nvml=Nvml())  # type: ignore[arg-type]
    for state in states:
        monitor.nvml = Nvml(**state)  # type: ignore[assignment]
        monitor.sample()
    return monitor.conditions(np.ones((9, 2)) if times is None else times)


@pytest.mark.parametrize(("waited", "spoiled", "noted"), [(0.0, 0, 0), (0.02, 0, 0), (0.1, 0, 1), (0.5, 1, 0)])
def test_a_processor_that_others_use_spoils_a_run_on_it(monkeypatch, waited, spoiled, noted) -> None:
    """Every reading a second later, in which all threads together waited for a share of what the cores can do."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    seconds = iter(range(10))
    monkeypatch.setattr(device.time, "perf_counter", lambda: float(next(seconds)))
    delays = iter(waited * (os.cpu_count() or 1) * second for second in range(10))
    monkeypatch.setattr(device, "waited_s", lambda: next(delays))
    monitor = Monitor.for_device("cpu")
    for _ in range(5):
        monitor.sample()
    found = monitor.conditions(np.ones((5, 2)))
    assert (len(found.spoiled), len(found.notes)) == (spoiled, noted)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count it")
def test_threads_that_wait_for_a_core_are_noticed() -> None:
    """Two busy threads on one core: half of the time each of them waits."""
    mine = os.sched_getaffinity(0)
    before = device.waited_s()
    os.sched_setaffinity(0, {min(mine)})
    try:
        rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # inherits the one core
        ended = time.perf_counter() + 0.6
        while time.perf_counter() < ended:
            pass
    finally:
        os.sched_setaffinity(0, mine)
        rival.kill()
        rival.wait()
    assert device.waited_s() - before > 0.1


def test_a_device_that_is_not_here_is_named() -> None:
    with pytest.raises(ValueError, match="device: 'cuda:99' is not here, PyTorch sees"):
        device.usable_device("cuda:99")
    with pytest.raises(ValueError, match="device: 'gpu' is unknown; give 'cpu' or 'cuda'"):
        device.usable_device("gpu")


def test_a_quiet_card_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched({}, {"sm": 1935, "power": 700_000}, monkeypatch=monkeypatch)
    assert (found.spoiled, found.notes, found.watched) == ((), (), True)
    assert found.sentence == "SM clock 1935–1980 MHz, power 650–700 W, 55 °C"


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"reasons": 32}, "slowed by heat"),
        ({"reasons": 8}, "slowed by the hardware"),
        ({"pids": [os.getpid(), 17]}, "1 other process on the GPU"),
        ({"pids": [11, 12, 13]}, "2 other processes on the GPU"),
    ],
)
def test_what_disturbs_a_run_spoils_it(state: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched({}, state, monkeypatch=monkeypatch).spoiled == (word,)


def test_the_power_limit_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched({"reasons": 4}, monkeypatch=monkeypatch)
    assert (found.spoiled, found.notes) == ((), ("at its power limit",))


def test_one_unknown_process_is_taken_to_be_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the driver counts processes as the host does."""
    assert watched({"pids": [4711]}, monkeypatch=monkeypatch).spoiled == ()


def test_a_falling_clock_spoils_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [{"sm": 1980}] * 3 + [{"sm": 1800}] * 3 + [{"sm": 1500}] * 3
    assert watched(*states, monkeypatch=monkeypatch).spoiled == ("the SM clock fell by 24%",)


def test_a_drift_is_noted_and_a_large_one_spoils(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (np.linspace(1, end, 30)[:, None] * [1.0, 2.0] for end in (1.15, 1.6))
    assert watched({}, times=small, monkeypatch=monkeypatch).notes == ("all times moved by +10% during the run",)
    assert watched({}, times=large, monkeypatch=monkeypatch).spoiled[0].startswith("all times moved by +3")


def test_a_card_that_does_not_tell_everything_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(
        {"raises": ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksEventReasons")}, monkeypatch=monkeypatch
    )
    assert (found.power_w, found.sm_clock_mhz) == ((), (1980,))


def test_nobody_looked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    found = Monitor.for_device("cuda:0").conditions(np.ones((3, 1)))
    assert not found.watched
    assert any("nvidia-ml-py" in note for note in found.notes)


def test_a_busy_machine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert Monitor.for_device("cpu").conditions(np.ones((3, 1))).notes == ("the machine was busy: load 9.0 on 2 cores",)


def test_the_machine_and_its_packages_are_described() -> None:
    about, packages = device.describe("cpu"), device.versions()
    assert about["type"] == "cpu"
    assert about["cores"] >= 1
    assert {"python", "torch", "numpy", "cmask-lab"} <= packages.keys()
