"""``cm.export``: a mask as source text for a neighbour; ``cm.export_targets``: which neighbours can take it.

A target is a module of this package with a function from a :class:`Plane` to source text, and, where the neighbour
can't express every mask, a function that says what stands in the way. Every source runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from cmask_lab.interop.plane import Plane
from cmask_lab.masks.mask import Mask, checked_mask


class Target(NamedTuple):
    """A way out.

    Attributes:
        title: what comes out, in one line.
        module, function: where the source is written; it takes a plane, or the mask if ``lengths`` is False.
        obstacle: name of the function that says why a plane (or mask) can't be expressed; "" if any can.
        lengths: whether the text depends on the lengths.
    """

    title: str
    module: str
    function: str = "source"
    obstacle: str = ""
    lengths: bool = True

    def load(self, name: str) -> Callable[..., Any]:
        """A function of the target's module."""
        return getattr(import_module(f"cmask_lab.interop.{self.module}"), name)


TARGETS = {
    "python": Target("cmask_lab code that rebuilds the mask", "python", lengths=False),
    "json": Target("the spec as JSON", "spec_json", lengths=False),
    "flex": Target("FlexAttention: a readable mask_mod and a BlockMask made from tiles", "flex", obstacle="obstacle"),
    "fa4": Target("FlashAttention-4: a CuTe mask_mod and block-sparse tensors", "fa4", obstacle="obstacle"),
    "flashmask": Target("PaddlePaddle FlashMask: startend_row_indices", "flashmask", obstacle="obstacle"),
    "magi": Target("MagiAttention: q_ranges, k_ranges and attn_type_map", "magi", obstacle="obstacle"),
    "hstu": Target("NVIDIA HSTU attention: the interval array func_tensor", "hstu", obstacle="obstacle"),
    "flashinfer": Target("FlashInfer: block-sparse rows and a packed mask", "flashinfer", obstacle="obstacle"),
    "transformers": Target(
        "Hugging Face: a mask function and an attention function for set_attn_implementation",
        "transformers",
        obstacle="obstacle",
        lengths=False,
    ),
    "xformers": Target("xFormers: an attention bias of its own classes", "xformers", obstacle="obstacle"),
    "triton": Target("one file with Triton kernels and this mask's descriptor, for torch and triton alone", "triton"),
    "sdpa": Target("PyTorch scaled_dot_product_attention with a bool mask", "dense", "sdpa_source"),
    "dense": Target("a bool mask and an additive bias", "dense", "dense_source"),
}


class Answer(NamedTuple):
    """Whether a mask can be exported to a target, and what comes out or what stands in the way."""

    possible: bool
    why: str


def export(
    mask: Mask, target: str, *, q_len: int | None = None, kv_len: int | None = None, q_start: int = 0, **options: Any
) -> str:
    """Source text that has the mask in the form of another library; it runs by itself.

    Args:
        target: one of ``cm.export_targets(mask)``.
        q_len, kv_len, q_start: the window, as for ``cm.compile``; left out, it is what the mask was made for. Not used
            by "python" and "json".
        options: of the target: ``chip``, ``backend``, ``block_size`` for "flex"; see its module.

    Raises:
        ValueError: unknown target, lengths that are missing or do not fit, or a mask that the target can't express; the
            message names the row or column that breaks it.
        TypeError: an option that the target doesn't have.

    >>> import cmask_lab as cm
    >>> exec(cm.export(cm.window(2), "dense", q_len=4))
    >>> make_mask().int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    """
    chosen = _target(target)
    write = chosen.load(chosen.function)
    known = write.__kwdefaults__ or {}
    for option in options:
        if option not in known:
            names = ", ".join(("q_len", "kv_len", "q_start", *known))
            raise TypeError(f"export: {target} has no option {option!r}; there are {names}")
    subject: Any = checked_mask(mask, "export: the mask")
    if chosen.lengths:
        subject = Plane.of(mask, q_len, kv_len, q_start, where="export")
    if chosen.obstacle and (reason := chosen.load(chosen.obstacle)(subject)):
        raise ValueError(f"export: {target} can't express this mask: {reason}")
    return write(subject, **options)


def export_targets(
    mask: Mask, *, q_len: int | None = None, kv_len: int | None = None, q_start: int = 0
) -> dict[str, Answer]:
    """For every target whether it can express the mask; ``why`` says what comes out, or what stands in the way.

    Args:
        q_len, kv_len, q_start: as for :func:`export`.

    >>> import cmask_lab as cm
    >>> cm.export_targets(cm.causal(), q_len=64)["flex"].possible
    True
    """
    plane: Plane | str
    try:
        plane = Plane.of(mask, q_len, kv_len, q_start, where="export")
    except ValueError as error:
        plane = str(error)
    return {name: _answer(target, mask, plane) for name, target in TARGETS.items()}


def _answer(target: Target, mask: Mask, plane: Plane | str) -> Answer:
    """``plane`` is a string that says why there is none, if so."""
    reason: str | None = None
    if target.lengths and isinstance(plane, str):
        reason = plane
    elif target.obstacle:
        reason = target.load(target.obstacle)(plane if target.lengths else mask)
    return Answer(reason is None, reason or target.title)


def _target(name: str) -> Target:
    if not isinstance(name, str) or name not in TARGETS:
        raise ValueError(f"export: target {name!r} is unknown; targets are {', '.join(TARGETS)}")
    return TARGETS[name]
