"""Kernels for Hopper (sm_90) in Gluon: TMA, wgmma, warp specialisation; :mod:`forward` and :mod:`backward`.

A few queries against long keys (decoding) make fewer work items than there are multiprocessors, and these kernels don't
split an item. Their forward pass is left to the portable kernels that do, by the rule of
:mod:`cmask_lab.kernels.portable.shares`: by count, not yet by a measurement on the chip.
"""

from __future__ import annotations

import torch
from cmask_lab.kernels.hopper import backward as _backward
from cmask_lab.kernels.hopper import forward as _forward
from cmask_lab.kernels.portable import BACKEND as PORTABLE
from cmask_lab.kernels.registry import Backend, Options, Problem

from cmask_lab.compiler.compile import CompiledMask

LARGEST_HEAD_DIM = 128
FEW_QUERIES = 16
"""Up to so many queries a forward pass may be left to the kernels that split the keys; a wgmma takes 64 rows."""


class Hopper:
    """The backend for compute capability 9.0; see :class:`cmask_lab.kernels.registry.Backend`."""

    name = "hopper"
    backward = staticmethod(_backward.backward)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; few queries with long keys by the portable kernels that split the keys."""
        if q.shape[2] <= FEW_QUERIES and PORTABLE.split(q, k, v, compiled).shares > 1:
            return PORTABLE.forward(q, k, v, compiled, options)
        return _forward.forward(q, k, v, compiled, options)

    def unsupported(self, problem: Problem) -> str | None:
        """Why it can't run the problem; None if it can."""
        if problem.dtype not in (torch.bfloat16, torch.float16):
            return f"takes bfloat16 and float16, not {str(problem.dtype).removeprefix('torch.')}"
        if problem.head_dim != problem.value_dim:
            return f"needs equal head dimensions of keys and values, got {problem.head_dim} and {problem.value_dim}"
        if problem.head_dim > LARGEST_HEAD_DIM or problem.head_dim % 8:
            return (
                f"needs a head dimension of at most {LARGEST_HEAD_DIM} that is a multiple of 8, got {problem.head_dim}"
            )
        return None


BACKEND: Backend = Hopper()
