"""The backend for Blackwell (sm_100): kernels that are compiled and checked, but **have not run on the chip**.

Their arithmetic is tested in Triton's interpreter; NOTES.md says what the compiler made of them. What the forward
kernel takes the backward kernels take too: there is one rule, :meth:`Blackwell.unsupported`, and what it declines goes
to the portable kernels, forward and backward.
"""

from __future__ import annotations

import torch
from cmask_lab.kernels.blackwell import backward as _backward
from cmask_lab.kernels.blackwell import forward as _forward
from cmask_lab.kernels.registry import Backend, Problem

TILES = ((128, 128), (128, 64))


class Blackwell:
    """See :class:`cmask_lab.kernels.registry.Backend`."""

    name = "blackwell"
    forward = staticmethod(_forward.forward)
    backward = staticmethod(_backward.backward)

    def unsupported(self, problem: Problem) -> str | None:
        """Why it can't run the problem; None if it can."""
        if problem.dtype not in (torch.bfloat16, torch.float16):
            return f"takes bfloat16 and float16, not {str(problem.dtype).removeprefix('torch.')}"
        if problem.head_dim != problem.value_dim or problem.head_dim > 128 or problem.head_dim % 8:
            return (
                "needs equal head dimensions of keys and values, a multiple of 8 and at most 128, "
                f"got {problem.head_dim} and {problem.value_dim}"
            )
        if problem.tile not in TILES:
            return f"takes tiles of {' and '.join(map(str, TILES))}, not {problem.tile}"
        if problem.activation != "softmax" or problem.softcap or problem.sinks:
            return "computes the plain softmax, without softcap or sinks"
        return None


BACKEND: Backend = Blackwell()
