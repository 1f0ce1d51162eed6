"""Triton ``tl`` kernels for any NVIDIA GPU from sm_80 on, forward and backward, driven by the descriptor alone."""

from cmask_lab.kernels.portable.backend import BACKEND

__all__ = ["BACKEND"]
