"""What a contender is, and what all of them are given."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

import cmask_lab as cm
from cmask_lab.bench.oracle import Task
from cmask_lab.bench.subjects import Subject
from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.masks.mask import Mask

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """One case to be measured: the mask, the shapes, the device.

    Attributes:
        compiled: the mask in natural order, on the host; the oracle reads its interval tables.
        needs_grad: whether backward is measured; then forward keeps what backward needs.
    """

    subject: Subject
    compiled: CompiledMask
    device: torch.device
    dtype: torch.dtype
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    needs_grad: bool

    @property
    def mask(self) -> Mask:
        """The mask in natural order."""
        return self.subject.mask

    @property
    def q_len(self) -> int:
        """Query rows."""
        return self.compiled.q_len

    @property
    def kv_len(self) -> int:
        """Keys."""
        return self.compiled.kv_len

    @property
    def scale(self) -> float:
        """Factor on the scores."""
        return 1 / math.sqrt(self.head_dim)

    @cached_property
    def ordered(self) -> CompiledMask:
        """The mask compiled with the token order that the compiler finds best."""
        return cm.compile(self.mask, self.q_len, self.kv_len, order="auto")

    @cached_property
    def kept(self) -> tuple[Mask, CompiledMask] | None:
        """The mask of tokens that are kept in the best order all through the model; None if natural order is best."""
        order = self.ordered.token_order
        if order is None:
            return None
        mask = self.mask.take(q=order, k=order)
        return mask, cm.compile(mask, self.q_len, self.kv_len)

    def pairs(self, per_mask: list[int]) -> int:
        """A count for each distinct mask, summed over the batch entries and heads that use it."""
        index = self.compiled.mask_index
        spread = np.broadcast_to(index, (self.batch, self.heads)) if index.shape != (1, 1) else index
        share = self.batch * self.heads // spread.size
        return share * int(np.asarray(per_mask, np.int64)[spread].sum())

    def task(self, *, kept: bool = False, activation: str = "softmax", normalizer: float = 1.0) -> Task:
        """What the oracle computes."""
        key = (kept, activation, normalizer)
        if key not in self._tasks:  # a task remembers what it has worked out
            compiled = self.kept[1] if kept and self.kept else self.compiled
            index = self.compiled.mask_index
            self._tasks[key] = Task(compiled.interval_tables, index, self.scale, activation, normalizer)
        return self._tasks[key]

    @cached_property
    def _tasks(self) -> dict[tuple[bool, str, float], Task]:
        return {}

    def tensors(self, generator: torch.Generator) -> Tensors:
        """Random q, k, v ``(B, H, S, D)``."""
        shapes = ((self.heads, self.q_len), (self.kv_heads, self.kv_len), (self.kv_heads, self.kv_len))
        q, k, v = (
            torch.randn(self.batch, *shape, self.head_dim, device=self.device, generator=generator).to(self.dtype)
            for shape in shapes
        )
        return q, k, v


class Contender(Protocol):
    """An implementation of attention that takes part.

    Its life: :meth:`absent` says whether it can run at all; :meth:`start` warms the process on another mask;
    :meth:`plan` turns the mask into what it needs, timed; then :meth:`run` is called again and again.
    """

    name: str
    note: str
    """What a reader should know of how it ran; filled in while it runs."""

    def absent(self, setting: Setting) -> str | None:
        """Why it can't run this here; None if it can."""
        ...

    def start(self, setting: Setting) -> None:
        """Run once on a small problem with another mask: whatever a process needs only once is loaded and compiled."""
        ...

    def plan(self, setting: Setting) -> None:
        """From the mask to what the kernel reads."""
        ...

    def compiling(self) -> AbstractContextManager[None]:
        """Entered around every call that may compile a kernel."""
        ...

    def prepare(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        """Inputs in the layout that it likes best, ``(B, H, S, D)`` being given; not timed."""
        ...

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention on prepared inputs; what is timed."""
        ...

    def restore(self, out: torch.Tensor) -> torch.Tensor:
        """Its output as ``(B, H, S, D)``; not timed."""
        ...

    def task(self, setting: Setting) -> Task:
        """What it computes, for the oracle."""
        ...

    def visited_pairs(self, setting: Setting) -> int | None:
        """Pairs in the tiles that it computes, over all heads; None if it does not say. Called after :meth:`plan`."""
        ...


class Natural:
    """What most contenders share: natural token order, softmax, ``(B, H, S, D)`` tensors, nothing to start or plan."""

    name: str
    note = ""

    def start(self, setting: Setting) -> None:
        """Nothing to do."""

    def plan(self, setting: Setting) -> None:
        """Nothing to do."""

    def compiling(self) -> AbstractContextManager[None]:
        """No settings."""
        return nullcontext()

    def prepare(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        """As they are."""
        return q, k, v

    def restore(self, out: torch.Tensor) -> torch.Tensor:
        """As it is."""
        return out

    def task(self, setting: Setting) -> Task:
        """Softmax over the natural mask."""
        return setting.task()

    def visited_pairs(self, setting: Setting) -> int | None:
        """It does not say."""
        return None


def one_line(error: BaseException) -> str:
    """An error as one line of a table: its kind, and the first line of its message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -=*^")]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def ready(device: torch.device) -> Any:
    """Wait until a device has done all that it was asked."""
    return torch.cuda.synchronize(device) if device.type == "cuda" else None
