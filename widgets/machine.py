"""What can be measured here: devices, contenders, and why not the rest.

PyTorch and the drivers are asked in a process of their own that ends at once: the notebook's kernel stays without a
CUDA context, and a panel is on the page before PyTorch is loaded.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

OURS = ("cmask", "cmask+order", "cmask+kept")
"""Our contenders that a panel offers."""

ABOUT = {
    "cmask": "ours: one kernel for all masks, fed by the descriptor",
    "cmask+order": "ours, tokens put into the compiler's order inside the call",
    "cmask+kept": "ours, tokens kept in the compiler's order all through the model",
    "flex-fa4": "FlexAttention, FLASH backend: FlashAttention-4",
    "flex-triton": "FlexAttention, Triton backend",
    "fa4": "FlashAttention-4 itself; causal, full and window masks",
    "sdpa-cudnn": "PyTorch SDPA, cuDNN; causal and full masks",
    "sdpa-flash": "PyTorch SDPA, FlashAttention-2; causal and full masks",
    "sdpa-dense": "PyTorch SDPA with the mask as a dense matrix",
    "flex-cpu": "FlexAttention, C++ kernel for the CPU",
}
PATIENCE_S = 180


@functools.cache
def look() -> dict[str, Any]:
    """Ask a fresh process, once; what it can't tell is in ``problem``.

    Returns:
        ``devices`` (``id``, ``kind``, ``name``, ``detail``), ``contenders`` (``name``, ``ours``, ``about``, ``absent``:
        device → direction → reason or None), ``versions``, ``no_gpu`` (why there is none) and ``problem``.
    """
    command = [sys.executable, "-m", "cmask_lab.widgets.machine"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return _nothing(f"the devices did not answer for {PATIENCE_S} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return _nothing(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def found() -> dict[str, Any]:
    """What :func:`look` returns, found out in this process."""
    try:
        import torch
    except ModuleNotFoundError:
        return _nothing("measuring needs PyTorch: pip install 'cmask-lab[gpu]'")
    from cmask_lab.bench.contenders import NAMES
    from cmask_lab.bench.device import describe, versions

    devices = [_gpu(index, describe(torch.device("cuda", index))) for index in range(torch.cuda.device_count())]
    cpu = describe("cpu")
    devices.append({"id": "cpu", "kind": "cpu", "name": cpu["name"], "detail": f"CPU, {cpu['threads']} threads"})
    contenders = [
        {"name": name, "ours": name in OURS, "about": ABOUT.get(name, ""), "absent": _absent(name, devices)}
        for name in (*OURS, *NAMES)
    ]
    no_gpu = ""
    if len(devices) == 1:
        no_gpu = "none was found" if torch.version.cuda else f"PyTorch {torch.__version__} was built without CUDA"
    return {"devices": devices, "contenders": contenders, "versions": versions(), "no_gpu": no_gpu, "problem": ""}


def _nothing(problem: str) -> dict[str, Any]:
    return {"devices": [], "contenders": [], "versions": {}, "no_gpu": problem, "problem": problem}


def _gpu(index: int, about: dict[str, Any]) -> dict[str, Any]:
    major, minor = about["capability"]
    detail = f"sm_{major}{minor}, {about['memory_bytes'] / 2**30:.0f} GiB"
    return {"id": f"cuda:{index}", "kind": "cuda", "name": about["name"], "detail": detail}


def _absent(name: str, devices: list[dict[str, Any]]) -> dict[str, dict[str, str | None]]:
    """Why a contender can't run on each device in each direction, asked about a causal mask that all could take."""
    import torch

    import cmask_lab as cm
    from cmask_lab.bench.contenders import make
    from cmask_lab.bench.contenders.contender import Setting
    from cmask_lab.bench.subjects import causal

    if "+" in name:
        return {}  # whether another token order is better depends on the mask: the run will tell
    subject, reasons = causal(1024), {}
    compiled = cm.compile(subject.mask, 1024)
    for device in devices:
        dtype = torch.bfloat16 if device["kind"] == "cuda" else torch.float32
        place = torch.device(device["id"])
        reasons[device["id"]] = {
            direction: make(name).absent(Setting(subject, compiled, place, dtype, 1, 4, 4, 64, needs_grad))
            for direction, needs_grad in (("forward", False), ("backward", True))
        }
    return reasons


if __name__ == "__main__":
    print(json.dumps(found()))
