"""The scale of the scores as kernels need it."""

from __future__ import annotations

import math

import torch

LOG2_E = math.log2(math.e)
"""Kernels take exponentials in base 2: ``exp(x) = exp2(x · log2 e)``."""
LN_2 = math.log(2)


def positive_scale(q: torch.Tensor, scale: float) -> tuple[torch.Tensor, float]:
    """q and a positive scale with the same products: a running maximum is taken before the scale is applied.

    >>> positive_scale(torch.ones(1), -2.0)
    (tensor([-1.]), 2.0)
    """
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (torch.zeros_like(q), 1.0)
