"""What launches ask of a device."""

from __future__ import annotations

import contextlib
from functools import cache

import torch


def current(device: torch.device) -> contextlib.AbstractContextManager:
    """The context in which kernels are launched on a device: Triton launches on the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a device; 1 where there is none to fill (the interpreter)."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
