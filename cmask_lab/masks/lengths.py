"""The lengths that a mask was made for."""

from __future__ import annotations

from cmask_lab.masks.combinators import And, Minus, Not, Or, PerBatch, PerHead
from cmask_lab.masks.mask import OPEN, Mask


def own_lengths(mask: Mask) -> tuple[int, int] | None:
    """``(q_len, kv_len)`` of a mask that was made for one sequence, None for one that suits any length.

    It was made for one if it, or an operand of it that reaches as far, ends there. A prefix or a global token says how
    long a sequence must be at least, not how long it is.

    >>> import cmask_lab as cm
    >>> own_lengths(cm.documents([3, 4]) & cm.causal()), own_lengths(cm.causal() | cm.prefix(3))
    ((7, 7), None)
    """
    waiting = [mask]
    while waiting:
        each = waiting.pop()
        if each._support.q1 < OPEN and each._support.k1 < OPEN and each.extent == mask.extent:
            return mask.extent[0] or 0, mask.extent[1] or 0
        if isinstance(each, And | Or | Minus | Not | PerBatch | PerHead):
            waiting += each.children
    return None
