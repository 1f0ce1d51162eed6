"""Measuring: ours and every baseline in one interleaved run, checked first, with a verdict that can be trusted.

``cm.benchmark`` is :func:`cmask_lab.bench.run.benchmark`; :func:`stream` yields its reports as they come. Reports load
without PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cmask_lab.bench.report import Report, recorded_names

if TYPE_CHECKING:
    from cmask_lab.bench.run import benchmark, stream

__all__ = ["Report", "benchmark", "recorded_names", "stream"]


def __getattr__(name: str) -> Any:
    """What measures needs PyTorch and is imported on first use."""
    if name not in ("benchmark", "stream"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("cmask_lab.bench.run"), name)
