"""The machine a report was measured on, and what happened to it meanwhile: clocks, power, throttling, other processes.

NVML (package ``nvidia-ml-py``) tells about NVIDIA GPUs. Where it is missing the report says that nobody looked, which
is not the same as "nothing happened".
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cmask_lab.bench.statistics import drift

if TYPE_CHECKING:
    import torch

PACKAGES = ("cmask-lab", "torch", "triton", "numpy", "flash-attn-4", "nvidia-cutlass-dsl")
"""Whose versions a report records."""

WAIT_NOTED, WAIT_SPOILS = 0.05, 0.20
"""Share of a run on the CPU in which this process's threads had work and waited for a core."""

CLOCK_FALL = 0.10
"""A median clock in the last third of a run this much below that of the first third spoils the run."""

DRIFT_NOTED, DRIFT_SPOILS = 0.05, 0.25
"""A common drift of all times cancels in the ratio of a round; a large one means that something else went on."""

_SPOILING = {
    "SwThermalSlowdown": "slowed by heat",
    "HwThermalSlowdown": "slowed by heat",
    "HwSlowdown": "slowed by the hardware",
    "HwPowerBrakeSlowdown": "slowed by the power brake",
}
"""NVML's reasons for a lower clock that make a run worthless."""

_WORTH_A_NOTE = {"SwPowerCap": "at its power limit"}
"""Reasons that long matrix work brings about on a sound card. They hit all contenders of a round alike."""


@dataclass(frozen=True)
class Conditions:
    """What was seen on the device while contenders were timed.

    Attributes:
        watched: whether clocks could be read.
        spoiled: why no verdict of this run should be trusted; empty if nothing was seen.
        notes: what a reader should know, though paired ratios stand.
        sm_clock_mhz, memory_clock_mhz, power_w, temperature_c: one reading a round.
    """

    watched: bool
    spoiled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sm_clock_mhz: tuple[int, ...] = ()
    memory_clock_mhz: tuple[int, ...] = ()
    power_w: tuple[float, ...] = ()
    temperature_c: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """Clock, power and temperature in words; "" where nobody looked.

        >>> Conditions(True, sm_clock_mhz=(1980, 1755), power_w=(690.0, 700.0), temperature_c=(51, 55)).sentence
        'SM clock 1755–1980 MHz, power 690–700 W, 51–55 °C'
        """
        parts = [
            f"SM clock {_span(self.sm_clock_mhz)} MHz" if self.sm_clock_mhz else "",
            f"power {_span(self.power_w)} W" if self.power_w else "",
            f"{_span(self.temperature_c)} °C" if self.temperature_c else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass
class Monitor:
    """Reads the state of one NVIDIA GPU, once a round; without one it looks at the load of the machine alone.

    >>> Monitor.for_device("cpu").conditions(np.ones((6, 2))).spoiled
    ()
    """

    nvml: ModuleType | None = None
    handle: Any = None
    missing: str = ""
    on_cpu: bool = False
    waits: list[tuple[float, float]] = field(default_factory=list)
    readings: list[Mapping[str, Any]] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)

    @classmethod
    def for_device(cls, device: torch.device | str) -> Monitor:
        """A monitor for a torch device."""
        if not str(device).startswith("cuda"):
            return cls(on_cpu=True)
        try:
            import pynvml
        except ModuleNotFoundError:
            return cls(missing="clocks and power were not read: pip install nvidia-ml-py")
        try:
            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(_uuid(device)))
        except pynvml.NVMLError as error:
            return cls(missing=f"clocks and power were not read: NVML says {error}")

    def sample(self) -> None:
        """Take one reading; call it while the device is busy."""
        if self.on_cpu:
            self.waits.append((time.perf_counter(), waited_s()))
        if self.nvml is None:
            return
        self.readings.append(_reading(self.nvml, self.handle))

    def conditions(self, times: np.ndarray) -> Conditions:
        """What all readings together say about a run with these times ``(rounds, contenders)``."""
        spoiled, notes = set(), {note for note in (self.missing, self._load()) if note}
        moved = drift(times)
        if abs(moved) > DRIFT_NOTED:
            (spoiled if abs(moved) > DRIFT_SPOILS else notes).add(f"all times moved by {moved:+.0%} during the run")
        if (share := self._waiting()) > WAIT_NOTED:
            said = f"other programs had the cores: threads of this one waited {share:.0%} of the time"
            (spoiled if share > WAIT_SPOILS else notes).add(said)
        for reading in self.readings:
            spoiled.update(_SPOILING[r] for r in reading["reasons"] if r in _SPOILING)
            notes.update(_WORTH_A_NOTE[r] for r in reading["reasons"] if r in _WORTH_A_NOTE)
            if reading["others"]:
                spoiled.add(f"{reading['others']} other process{'es' if reading['others'] > 1 else ''} on the GPU")
        clocks = [r["sm_clock_mhz"] for r in self.readings if r["sm_clock_mhz"]]
        third = len(clocks) // 3
        if third and (fall := 1 - np.median(clocks[-third:]) / np.median(clocks[:third])) > CLOCK_FALL:
            spoiled.add(f"the SM clock fell by {fall:.0%}")
        return Conditions(
            watched=self.nvml is not None,
            spoiled=tuple(sorted(spoiled)),
            notes=tuple(sorted(notes)),
            **{
                name: tuple(r[name] for r in self.readings if r[name] is not None)
                for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
            },
        )

    def _waiting(self) -> float:
        """Time that threads waited for a core, of the time of all cores between the first reading and the last."""
        if len(self.waits) < 2:
            return 0.0
        (began, first), (ended, last) = self.waits[0], self.waits[-1]
        return (last - first) / max(ended - began, 1e-9) / (os.cpu_count() or 1)

    def _load(self) -> str:
        """A word if more threads want to run than there are cores; "" if not, or if the system can't tell."""
        if not hasattr(os, "getloadavg"):
            return ""
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        return f"the machine was busy: load {load:.1f} on {cores} cores" if load > 1.5 * cores else ""


def waited_s() -> float:
    """Seconds that the threads of this process have had work and no core so far; 0 where the system doesn't tell.

    Linux: second number of ``/proc/self/task/*/schedstat``, "time spent waiting on a runqueue" in nanoseconds.
    """
    total = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])
        except (OSError, IndexError):  # a thread that has just ended, a kernel that doesn't count
            continue
    return total * 1e-9


def describe(device: torch.device | str) -> dict[str, Any]:
    """Name, memory and driver of a device, as far as they can be read.

    >>> describe("cpu")["type"]
    'cpu'
    """
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return {
            "type": "cuda",
            "name": found.name,
            "capability": list(torch.cuda.get_device_capability(device)),
            "multiprocessors": found.multi_processor_count,
            "memory_bytes": found.total_memory,
            "l2_bytes": getattr(found, "L2_cache_size", None),
            "cuda": torch.version.cuda,
            "driver": _driver(),
        }
    return {"type": "cpu", "name": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, those that are installed.

    >>> "numpy" in versions()
    True
    """
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if "torch" in sys.modules:
        found["torch"] = sys.modules["torch"].__version__
    if "cmask-lab" not in found:
        import cmask_lab

        found["cmask-lab"] = cmask_lab.__version__
    return found


def best_device() -> torch.device:
    """The first CUDA GPU, or else the CPU."""
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def usable_device(device: torch.device | str | None) -> torch.device:
    """The device of that name, or the best one there is if none is given.

    Raises:
        ValueError: it is not here.

    >>> usable_device("cpu")
    device(type='cpu')
    """
    import torch

    if device is None:
        return best_device()
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device: {device!r} is unknown; give 'cpu' or 'cuda'") from None
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device: {device!r} is not measured on; give 'cpu' or 'cuda'")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ValueError(f"device: {device!r} is not here, PyTorch sees {found} CUDA devices; cmask doctor says why")
    return chosen


def cpu_name() -> str:
    """The processor's name as the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _reading(nvml: ModuleType, handle: Any) -> dict[str, Any]:
    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *arguments)
        except nvml.NVMLError:
            return None  # not every card and driver tells everything

    power = ask("nvmlDeviceGetPowerUsage")
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons") or 0
    names = [name for name in (*_SPOILING, *_WORTH_A_NOTE) if reasons & _reason_bit(nvml, name)]
    return {
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "power_w": None if power is None else power / 1000,
        "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "reasons": names,
        "others": _other_processes(ask("nvmlDeviceGetComputeRunningProcesses") or []),
    }


def _reason_bit(nvml: ModuleType, name: str) -> int:
    """NVML renamed these constants; a missing one is a reason that this driver never gives."""
    for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
        if hasattr(nvml, prefix + name):
            return getattr(nvml, prefix + name)
    return 0


def _other_processes(running: list[Any]) -> int:
    """How many processes beside this one use the GPU.

    One of those listed is this one, which has used the GPU before it asks. It is not looked for by its number: in a
    container NVML counts processes as the host does.
    """
    return max(len(running) - 1, 0)


def _uuid(device: torch.device | str) -> str:
    import torch

    found = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
    return found if found.startswith("GPU-") else f"GPU-{found}"


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
    except (ModuleNotFoundError, OSError):
        return None
    except Exception as error:  # NVML's own exception class exists only where the package does
        return f"unknown ({error})"
    return version if isinstance(version, str) else version.decode()


def _span(values: tuple[float, ...]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low}–{high}"
