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
from typing import TYPE_CHECKING, Any

from cmask_lab.compiler.compile import CompiledMask, compile
from cmask_lab.masks import (
    Mask,
    anticausal,
    band,
    causal,
    documents,
    empty,
    explicit,
    from_dense,
    from_spec,
    full,
    global_tokens,
    grid,
    per_batch,
    per_head,
    prefix,
    rect,
    repeat,
    sink,
    strided,
    suffix,
    tiles,
    tree,
    window,
)

if TYPE_CHECKING:
    from cmask_lab.attention import attention
    from cmask_lab.bench.report import Report
    from cmask_lab.bench.run import benchmark
    from cmask_lab.compiler.check import check
    from cmask_lab.compiler.simplify import simplify
    from cmask_lab.interop.block_mask import from_block_mask
    from cmask_lab.interop.export import export, export_targets
    from cmask_lab.interop.flashmask import from_flashmask
    from cmask_lab.interop.hstu import from_hstu
    from cmask_lab.interop.magi import from_magi
    from cmask_lab.interop.mask_mod import from_mask_mod
    from cmask_lab.interop.transformers import from_huggingface_position_ids, from_transformers
    from cmask_lab.interop.windows import from_window
    from cmask_lab.interop.xformers import from_attention_bias
    from cmask_lab.masks import gallery
    from cmask_lab.widgets.studio import Studio

__version__ = "0.1.0"

_WHERE = {
    "attention": "cmask_lab.attention",
    "benchmark": "cmask_lab.bench.run",
    "Report": "cmask_lab.bench.report",
    "export": "cmask_lab.interop.export",
    "export_targets": "cmask_lab.interop.export",
    "from_mask_mod": "cmask_lab.interop.mask_mod",
    "from_flashmask": "cmask_lab.interop.flashmask",
    "from_magi": "cmask_lab.interop.magi",
    "from_hstu": "cmask_lab.interop.hstu",
    "Studio": "cmask_lab.widgets.studio",
    "from_attention_bias": "cmask_lab.interop.xformers",
    "from_block_mask": "cmask_lab.interop.block_mask",
    "from_transformers": "cmask_lab.interop.transformers",
    "from_huggingface_position_ids": "cmask_lab.interop.transformers",
    "from_window": "cmask_lab.interop.windows",
    "simplify": "cmask_lab.compiler.simplify",
    "check": "cmask_lab.compiler.check",
}
"""Names that are imported on first use, and the module each is in."""

_MODULES = {"gallery": "cmask_lab.masks.gallery"}
"""Modules that are imported on first use."""

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

__all__ = [
    "CompiledMask",
    "Mask",
    "Report",
    "Studio",
    "__version__",
    "anticausal",
    "attention",
    "band",
    "benchmark",
    "causal",
    "check",
    "compile",
    "documents",
    "empty",
    "explicit",
    "export",
    "export_targets",
    "from_attention_bias",
    "from_block_mask",
    "from_dense",
    "from_flashmask",
    "from_hstu",
    "from_huggingface_position_ids",
    "from_magi",
    "from_mask_mod",
    "from_spec",
    "from_transformers",
    "from_window",
    "full",
    "gallery",
    "global_tokens",
    "grid",
    "per_batch",
    "per_head",
    "prefix",
    "rect",
    "repeat",
    "simplify",
    "sink",
    "strided",
    "suffix",
    "tiles",
    "tree",
    "window",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = import_module(_MODULES[name]) if name in _MODULES else getattr(import_module(_WHERE[name]), name)
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
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``cm.attention`` the operator: importing the module of that name would put itself in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "attention" and isinstance(value, ModuleType):
            value = value.attention
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
