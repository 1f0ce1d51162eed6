"""What this machine can run, and why not the rest: ``cmask doctor``.

Every line is found out, not assumed: a package is looked up, a backend is asked about a real problem, a baseline says
what it misses.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

GOOD, MISSING, NOTE = "ok", "no", "–"

EXTRAS = {
    "gpu": ("torch", "triton", "nvidia-ml-py", "plotly", "tqdm"),
    "lab": ("jupyterlab", "ipywidgets", "anywidget", "ipykernel"),
}
"""Optional packages by the extra that brings them."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        group: heading under which it stands.
        name: what was looked at.
        status: "ok", "no", or "–" where there is nothing to judge.
        detail: version, device, or why not.
    """

    group: str
    name: str
    status: str
    detail: str


def examine() -> Iterator[Finding]:
    """Look at everything, from Python to the kernels."""
    import cmask_lab

    version = platform.python_version()
    yield Finding("Here", "cmask-lab", NOTE, cmask_lab.__version__)
    yield Finding("Here", "Python", GOOD if sys.version_info >= (3, 11) else MISSING, f"{version} (3.11 or newer)")
    for extra, packages in EXTRAS.items():
        for package in packages:
            yield _package(package, extra)
    compiler = next((c for c in ("g++", "c++", "clang++") if shutil.which(c)), None)
    yield Finding(
        "Packages", "C++ compiler", GOOD if compiler else MISSING, compiler or "FlexAttention's CPU kernel needs one"
    )
    if importlib.util.find_spec("torch") is None:
        yield Finding(
            "Devices", "PyTorch", MISSING, "masks and compiler work; attention needs pip install 'cmask-lab[gpu]'"
        )
        return
    yield from _devices()
    yield from _backends()
    yield from _baselines()


def report() -> str:
    """All findings as text, grouped.

    >>> "Backends" in report()
    True
    """
    findings = list(examine())
    width = max(len(f.name) for f in findings)
    lines, group = [], ""
    for f in findings:
        if f.group != group:
            group = f.group
            lines.append(f"\n{group}" if lines else group)
        lines.append(f"  {f.status:>2}  {f.name.ljust(width)}  {f.detail}".rstrip())
    return "\n".join(lines)


def _package(package: str, extra: str) -> Finding:
    try:
        return Finding("Packages", package, GOOD, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Finding("Packages", package, MISSING, f"pip install 'cmask-lab[{extra}]'")


def _devices() -> Iterator[Finding]:
    import torch

    from cmask_lab.bench.device import Monitor, describe

    cpu = describe("cpu")
    yield Finding("Devices", "CPU", GOOD, f"{cpu['name']}, {cpu['cores']} cores, {cpu['threads']} threads in PyTorch")
    if not torch.cuda.is_available():
        reason = "none found" if torch.version.cuda else f"PyTorch {torch.__version__} was built without CUDA"
        yield Finding("Devices", "CUDA GPU", MISSING, reason)
        return
    for index in range(torch.cuda.device_count()):
        about = describe(torch.device("cuda", index))
        major, minor = about["capability"]
        detail = (
            f"{about['name']}, sm_{major}{minor}, {about['memory_bytes'] / 2**30:.0f} GiB, driver {about['driver']}"
        )
        yield Finding("Devices", f"GPU {index}", GOOD, detail)
        monitor = Monitor.for_device(torch.device("cuda", index))
        watched = "clocks, power and processes can be read" if not monitor.missing else monitor.missing
        yield Finding("Devices", f"GPU {index} watched", MISSING if monitor.missing else GOOD, watched)


def _backends() -> Iterator[Finding]:
    """Each backend, asked about an ordinary call on the best device: half precision on a GPU, float32 on a CPU."""
    from cmask_lab.kernels import registry

    device, problem = _ordinary_problem()
    for name in registry.names():
        reason = registry.reason_against(name, problem)
        yield Finding(f"Backends on {device}", name, MISSING if reason else GOOD, reason or "runs here")
    yield Finding(f"Backends on {device}", "auto", NOTE, f"takes {registry.choose(problem).name}")


def _ordinary_problem() -> tuple[str, Any]:
    import torch

    from cmask_lab.bench.device import best_device
    from cmask_lab.kernels.registry import Problem, device_capability

    device = best_device()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    problem = Problem(device.type, device_capability(device), dtype, 128, 128, 1, 16, 16, 4096, 4096, (128, 128))
    return device.type, problem


def _baselines() -> Iterator[Finding]:
    """Each baseline, asked about a causal mask."""
    import torch

    import cmask_lab as cm
    from cmask_lab.bench.contenders import NAMES, make
    from cmask_lab.bench.contenders.contender import Setting
    from cmask_lab.bench.device import best_device
    from cmask_lab.bench.subjects import causal

    device = best_device()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    subject = causal(4096)
    setting = Setting(subject, cm.compile(subject.mask, 4096), device, dtype, 1, 16, 16, 128, needs_grad=False)
    for name in NAMES:
        reason = make(name).absent(setting)
        yield Finding("Baselines", name, MISSING if reason else GOOD, reason or "runs here")
