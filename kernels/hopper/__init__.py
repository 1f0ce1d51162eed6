"""Kernels for Hopper (sm_90) in Gluon: TMA, wgmma, warp specialisation; :mod:`forward` and :mod:`backward`."""

from __future__ import annotations

import torch
from cmask_lab.kernels.hopper import backward as _backward
from cmask_lab.kernels.hopper import forward as _forward
from cmask_lab.kernels.registry import Backend, Problem

LARGEST_HEAD_DIM = 128


class Hopper:
    """The backend for compute capability 9.0; see :class:`cmask_lab.kernels.registry.Backend`."""

    name = "hopper"
    forward = staticmethod(_forward.forward)
    backward = staticmethod(_backward.backward)

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
