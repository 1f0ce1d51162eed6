"""Draw an attention mask, see what it costs, run it at hardware speed, take the code with you.

>>> import cmask_lab as cm
>>> mask = cm.documents([3, 5]) & cm.causal()
>>> mask.to_dense(8).sum()
np.int64(21)

Masks and the compiler need NumPy alone and are here at once. What needs PyTorch, a plot or Jupyter is imported when it
is first used, and says which extra to install where something is missing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "attention": "cmask_lab.attention",
    "compile": "cmask_lab.compiler.compile",
    "CompiledMask": "cmask_lab.compiler.compile",
    "Mask": "cmask_lab.masks.mask",
    "full": "cmask_lab.masks.regions",
    "empty": "cmask_lab.masks.regions",
    "causal": "cmask_lab.masks.regions",
    "anticausal": "cmask_lab.masks.regions",
    "window": "cmask_lab.masks.regions",
    "band": "cmask_lab.masks.regions",
    "rect": "cmask_lab.masks.regions",
    "prefix": "cmask_lab.masks.regions",
    "sink": "cmask_lab.masks.regions",
    "suffix": "cmask_lab.masks.regions",
    "global_tokens": "cmask_lab.masks.regions",
    "strided": "cmask_lab.masks.regions",
    "documents": "cmask_lab.masks.tables",
    "tiles": "cmask_lab.masks.tables",
    "tree": "cmask_lab.masks.tables",
    "explicit": "cmask_lab.masks.tables",
    "from_dense": "cmask_lab.masks.tables",
    "per_batch": "cmask_lab.masks.combinators",
    "per_head": "cmask_lab.masks.combinators",
    "repeat": "cmask_lab.masks.placement",
    "grid": "cmask_lab.masks.grids",
}
"""Names that are imported on first use, and the module each is in."""

_EXTRAS = {
    "torch": ("gpu", "pytorch"),
    "triton": ("gpu", "triton"),
    "plotly": ("gpu", "plotly"),
    "tqdm": ("gpu", "tqdm"),
    "pynvml": ("gpu", "nvidia-ml-py"),
    "anywidget": ("lab", "anywidget"),
    "ipywidgets": ("lab", "ipywidgets"),
    "traitlets": ("lab", "ipywidgets"),
    "IPython": ("lab", "ipykernel"),
}
"""Optional packages: the extra that brings each, and its name in conda."""

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra, conda = _EXTRAS[package]
        raise ModuleNotFoundError(
            f"cmask_lab.{name} needs the package {package}, which is not installed. Install it with\n"
            f"  pip install 'cmask-lab[{extra}]'\n"
            f"or\n"
            f"  conda install -c conda-forge {conda}",
            name=error.name,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps ``cm.attention`` the operator: importing the module of that name would put itself in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "attention" and isinstance(value, ModuleType):
            value = value.attention
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
