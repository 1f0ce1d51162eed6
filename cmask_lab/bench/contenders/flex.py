"""FlexAttention under ``torch.compile``: its FLASH backend (FlashAttention-4), its Triton backend, its CPU kernel.

``+kept`` gives it the mask of tokens that are kept in the order that our compiler found, with a predicate for that.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from cmask_lab.bench import predicates
from cmask_lab.bench.contenders.contender import Natural, Setting
from cmask_lab.bench.oracle import Task
from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.tiles import tile_table

EAGER_BYTES_PER_PAIR = 10
"""What eager ``create_block_mask`` was seen to take: 0.6 GB at 8K, 10 GB at 32K, 40 GB at 64K."""

COMPILED_BYTES_PER_PAIR = 1
"""A compiled one writes at most the mask itself."""


class Flex(Natural):
    """``torch.compile(flex_attention, dynamic=False)`` with the fastest predicate known and full-tile lists."""

    def __init__(self, name: str) -> None:
        base, *variants = name.split("+")
        self.name, self.base, self.kept = name, base, "kept" in variants
        if unknown := sorted(set(variants) - {"kept"}):
            raise ValueError(f"contender: {name!r}: FlexAttention has no variant {unknown[0]!r}; there is 'kept'")
        self.block_mask: Any = None
        self._attention: Callable[..., torch.Tensor] | None = None

    def absent(self, setting: Setting) -> str | None:
        """Which packages and devices each backend needs."""
        cuda = setting.device.type == "cuda"
        if self.kept and (setting.q_len != setting.kv_len or setting.kept is None):
            return "no token order is better than the natural one"
        if self.base == "flex-cpu":
            if cuda:
                return "is the kernel for the CPU; the benchmark runs on a GPU"
            if setting.needs_grad:
                return "FlexAttention's CPU kernel has no backward pass"
            if not (shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")):
                return "needs a C++ compiler to build its kernel; none was found"
            return None
        if not cuda:
            return "needs a CUDA GPU"
        if self.base == "flex-fa4":
            if torch.cuda.get_device_capability(setting.device) < (9, 0):
                return "needs an sm_90 GPU or newer"
            if importlib.util.find_spec("flash_attn") is None or importlib.util.find_spec("flash_attn.cute") is None:
                return "needs the package flash-attn-4 (pip install --pre flash-attn-4)"
        return None

    def start(self, setting: Setting) -> None:
        """A small causal problem: the compilers are loaded and have compiled once."""
        from torch.nn.attention.flex_attention import create_block_mask

        block_mask = create_block_mask(predicates.causal(), None, None, 512, 512, device=str(setting.device))
        q, k, v = (
            torch.randn(setting.batch, heads, 512, setting.head_dim, device=setting.device).to(setting.dtype)
            for heads in (setting.heads, setting.kv_heads, setting.kv_heads)
        )
        leaves = [x.requires_grad_(setting.needs_grad) for x in (q, k, v)]
        out = self._compiled()(*leaves, block_mask=block_mask, **self._options(setting))
        if setting.needs_grad:
            torch.autograd.grad(out, leaves, torch.ones_like(out))

    def plan(self, setting: Setting) -> None:
        """The predicate's tables, then ``create_block_mask``, eager or compiled as memory allows; else our tiles."""
        mask_mod = self._predicate(setting)
        self._attention, self._call_options = self._compiled(), self._options(setting)
        block = (256, 128) if setting.device.type == "cuda" and self._chip(setting) >= (10, 0) else (128, 128)
        self.block_mask, how = self._block_mask(setting, mask_mod, block)
        self.note = f"block mask {block[0]}×{block[1]} {how}"
        if self.kept:
            self.note += f", tokens kept in {setting.ordered.order}"

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Compiler settings that this use needs, for as long as kernels may be compiled."""
        import torch._dynamo.config
        import torch._functorch.config

        # Past eight masks torch.compile would quietly run the eager version, which forms all scores.
        many_masks = {"recompile_limit": 256, "fail_on_recompile_limit_hit": True}
        # Backward runs many times on one graph, so the graph must not give its saved tensors away.
        with torch._dynamo.config.patch(many_masks), torch._functorch.config.patch(donated_buffer=False):
            yield

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The compiled operator."""
        assert self._attention is not None, "plan() comes first"
        return self._attention(q, k, v, block_mask=self.block_mask, **self._call_options)

    def task(self, setting: Setting) -> Task:
        """The natural mask or, for ``+kept``, the permuted one."""
        return setting.task(kept=self.kept)

    def visited_pairs(self, setting: Setting) -> int | None:
        """All cells of its blocks that are not empty."""
        counts = self.block_mask.kv_num_blocks.sum(-1)
        if self.block_mask.full_kv_num_blocks is not None:
            counts = counts + self.block_mask.full_kv_num_blocks.sum(-1)
        b, h = counts.shape
        area = self.block_mask.BLOCK_SIZE[0] * self.block_mask.BLOCK_SIZE[1]
        return int(counts.sum()) * area * (setting.batch // b) * (setting.heads // h)

    def _compiled(self) -> Callable[..., torch.Tensor]:
        from torch.nn.attention.flex_attention import flex_attention

        return torch.compile(flex_attention, dynamic=False)

    def _options(self, setting: Setting) -> dict[str, Any]:
        options: dict[str, Any] = {"scale": setting.scale, "enable_gqa": setting.heads != setting.kv_heads}
        if self.base == "flex-fa4":
            options["kernel_options"] = {"BACKEND": "FLASH"}
        elif self.base == "flex-triton":
            options["kernel_options"] = {"BACKEND": "TRITON"}
        return options

    def _chip(self, setting: Setting) -> tuple[int, int]:
        return torch.cuda.get_device_capability(setting.device)

    def _predicate(self, setting: Setting) -> predicates.MaskMod:
        written = setting.subject.predicate
        order = setting.ordered.token_order if self.kept else None
        if written is not None:
            return written(setting.device, order)
        compiled = setting.kept[1] if self.kept and setting.kept else setting.compiled
        each = [predicates.from_intervals(table, setting.device) for table in compiled.interval_tables]
        return each[0] if len(each) == 1 else _by_entry_and_head(each, setting)

    def _block_mask(self, setting: Setting, mask_mod: predicates.MaskMod, block: tuple[int, int]) -> tuple[Any, str]:
        from torch.nn.attention.flex_attention import create_block_mask

        rows, columns = setting.compiled.mask_index.shape
        pairs = rows * columns * setting.q_len * setting.kv_len
        arguments = (mask_mod, rows, columns, setting.q_len, setting.kv_len)
        free = _free_bytes(setting.device)
        if EAGER_BYTES_PER_PAIR * pairs < free / 2:
            return create_block_mask(*arguments, device=str(setting.device), BLOCK_SIZE=block), "by create_block_mask"
        if setting.device.type == "cuda" and COMPILED_BYTES_PER_PAIR * pairs < free / 2:
            compiled = torch.compile(create_block_mask)
            return compiled(*arguments, device=str(setting.device), BLOCK_SIZE=block), "by compiled create_block_mask"
        source = setting.kept[1] if self.kept and setting.kept else setting.compiled
        return block_mask_from_tiles(
            source, mask_mod, block, setting.device
        ), "from our tiles, all else being too large"


def block_mask_from_tiles(
    compiled: CompiledMask, mask_mod: predicates.MaskMod, block: tuple[int, int], device: torch.device
) -> Any:
    """A ``BlockMask`` with full-tile lists from interval tables: its memory follows the tiles, not their product."""
    from torch.nn.attention.flex_attention import BlockMask

    maps = [tile_table(table, block).classes() for table in compiled.interval_tables]
    grid = np.stack([maps[number] for number in compiled.mask_index.reshape(-1)])
    grid = grid.reshape(*compiled.mask_index.shape, *maps[0].shape)

    def listed(wanted: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        order = np.argsort(~wanted, axis=-1, kind="stable").astype(np.int32)
        return torch.from_numpy(wanted.sum(-1).astype(np.int32)).to(device), torch.from_numpy(order).to(device)

    return BlockMask.from_kv_blocks(
        *listed(grid == 1),
        *listed(grid == 2),
        BLOCK_SIZE=block,
        mask_mod=mask_mod,
        seq_lengths=(compiled.q_len, compiled.kv_len),
    )


def _by_entry_and_head(each: list[predicates.MaskMod], setting: Setting) -> predicates.MaskMod:
    """One predicate for masks that differ by batch entry or head: all are evaluated, one is chosen."""
    index = torch.from_numpy(np.ascontiguousarray(setting.compiled.mask_index)).to(setting.device)
    rows, columns = index.shape

    def predicate(b, h, q, kv):
        number = index[b % rows, h % columns]
        seen = each[0](b, h, q, kv) & (number == 0)
        for other in range(1, len(each)):
            seen = seen | (each[other](b, h, q, kv) & (number == other))
        return seen

    return predicate


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**32
