"""Our own operator: ``cmask``, one of its backends by name (``cmask-portable``), and variants.

``+order`` lets the compiler permute the tokens, inside the call; ``+kept`` runs on tokens that are kept in that order
all through the model; ``+silu`` uses HSTU's activation in place of softmax.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

import cmask_lab as cm
from cmask_lab.attention import choose_backend
from cmask_lab.bench.contenders.contender import Natural, Setting
from cmask_lab.bench.oracle import Task
from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.kernels import registry

VARIANTS = ("order", "kept", "silu")


class Ours(Natural):
    """``cm.attention`` with a compiled mask."""

    def __init__(self, name: str) -> None:
        base, *variants = name.split("+")
        self.name, self.variants = name, frozenset(variants)
        self.backend = base.removeprefix("cmask").removeprefix("-") or "auto"
        self.compiled: CompiledMask | None = None
        if self.backend != "auto" and self.backend not in registry.names():
            raise ValueError(
                f"contender: {name!r}: no backend {self.backend!r}; there are {', '.join(registry.names())}"
            )
        if unknown := sorted(self.variants - set(VARIANTS)):
            raise ValueError(f"contender: {name!r}: no variant {unknown[0]!r}; there are {', '.join(VARIANTS)}")

    def absent(self, setting: Setting) -> str | None:
        """Ask the registry; a variant in another order needs one that is better than the natural one."""
        if self.variants & {"order", "kept"}:
            if setting.q_len != setting.kv_len:
                return "a token order needs as many queries as keys"
            if setting.ordered.token_order is None:
                return "no token order is better than the natural one"
        q, k, v = _few(setting)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the choice and its reasons are in the note
                choice = choose_backend(q, k, v, setting.compiled, backend=self.backend, **self._options(setting))
        except ValueError as error:
            return str(error).removeprefix("attention: ")
        self.note = f"{choice.name} kernel"
        return None

    def start(self, setting: Setting) -> None:
        """One forward, and backward if wanted, on a mask and lengths of its own."""
        length = min(512, setting.q_len)
        mask = cm.compile(cm.window(length // 4) | cm.prefix(16), length)
        q, k, v = (
            torch.randn(setting.batch, heads, length, setting.head_dim, device=setting.device).to(setting.dtype)
            for heads in (setting.heads, setting.kv_heads, setting.kv_heads)
        )
        q, k, v = (x.requires_grad_(setting.needs_grad) for x in (q, k, v))
        out = self._attention(q, k, v, mask, self._options(setting))
        if setting.needs_grad:
            torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    def plan(self, setting: Setting) -> None:
        """Compile the mask and bring its descriptor to the device; the search for an order is told apart."""
        mask = setting.kept[0] if "kept" in self.variants and setting.kept else setting.mask
        ordered = setting.ordered if self.variants & {"order", "kept"} else None
        found = ordered.token_order if ordered and "order" in self.variants else None
        order = "natural" if found is None else found
        self.compiled = cm.compile(mask, setting.q_len, setting.kv_len, order=order).to(setting.device)
        self._call_options = self._options(setting)
        if ordered:
            how = "permuted inside the call" if "order" in self.variants else "kept so"
            self.note += f", tokens in {ordered.order}, {how}; order found in {ordered.compile_ms / 1e3:.1f} s"

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The operator."""
        assert self.compiled is not None, "plan() comes first"
        return self._attention(q, k, v, self.compiled, self._call_options)

    def task(self, setting: Setting) -> Task:
        """The natural mask or, for ``+kept``, the permuted one."""
        options = self._options(setting)
        kept = "kept" in self.variants
        return setting.task(
            kept=kept, activation=options.get("activation", "softmax"), normalizer=options.get("normalizer", 1.0)
        )

    def visited_pairs(self, setting: Setting) -> int | None:
        """All cells of the tiles that are not empty."""
        assert self.compiled is not None, "plan() comes first"
        area = self.compiled.tile[0] * self.compiled.tile[1]
        return setting.pairs([(t.full_tiles + t.partial_tiles) * area for t in self.compiled.tile_maps])

    def _attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: CompiledMask, options: dict[str, Any]
    ) -> torch.Tensor:
        out = cm.attention(q, k, v, mask, backend=self.backend, **options)
        assert isinstance(out, torch.Tensor), "the log-sum-exp was not asked for"
        return out

    def _options(self, setting: Setting) -> dict[str, Any]:
        if "silu" in self.variants:
            return {"scale": setting.scale, "activation": "silu", "normalizer": float(setting.kv_len)}
        return {"scale": setting.scale}


def _few(setting: Setting) -> list[torch.Tensor]:
    """Tensors of the right shapes that take no memory: every position is the same."""
    shapes = ((setting.heads, setting.q_len), (setting.kv_heads, setting.kv_len), (setting.kv_heads, setting.kv_len))
    zero = torch.zeros(1, 1, 1, setting.head_dim, dtype=setting.dtype, device=setting.device)
    zero.requires_grad_(setting.needs_grad)
    return [zero.expand(setting.batch, heads, length, setting.head_dim) for heads, length in shapes]
