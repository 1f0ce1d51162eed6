"""Targets ``dense`` and ``sdpa``: the mask as a bool tensor or an additive bias, and a call of PyTorch's attention.

Format: ``torch.nn.functional.scaled_dot_product_attention`` (PyTorch documentation): ``attn_mask`` is bool, True where
a query sees a key, or float and added to the scores; both broadcast to ``(B, H, Sq, Skv)``. ``is_causal=True`` is the
causal mask of absolute positions from 0 (aligned at the top left).

A dense mask takes memory in proportion to queries times keys; it is meant for small sizes and for checking.
"""

from __future__ import annotations

import re

import numpy as np

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.interop.plane import Plane
from cmask_lab.interop.torch_source import MaskFunction, indented, module


def dense_source(plane: Plane) -> str:
    """A module with ``make_mask(device)``, bool, and ``make_bias(dtype, device)``, 0 and -inf.

    Both are ``(q_len, kv_len)``; ``(batch or 1, heads or 1, q_len, kv_len)`` if the mask differs by batch entry or
    head.
    """
    return _module(plane, [MAKE_BIAS])


def sdpa_source(plane: Plane) -> str:
    """A module with ``attention(q, k, v)``; without any mask tensor where PyTorch's kernels know the mask by name."""
    causal = IntervalTable.from_row_bounds(0, np.arange(1, plane.q_len + 1), plane.kv_len)
    known = ""
    if len(plane.masks) == 1 and plane.table.visible_pairs == plane.q_len * plane.kv_len:
        known = "attn_mask=None"
    elif len(plane.masks) == 1 and plane.table == causal:
        known = "is_causal=True"
    if known:
        lengths = [f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}"]
        return module(plane.title, ["import torch.nn.functional as F"], lengths, [ATTENTION.replace("MASK", known)])
    attention = ATTENTION.replace("MASK", "attn_mask=mask").replace(
        "(q, k, v, scale=None)", "(q, k, v, mask, scale=None)"
    )
    if any((np.diff(table.row_ptr) == 0).any() for table in plane.tables):
        attention = attention.replace("    return ", "    out = ") + EMPTY_ROWS
    return _module(plane, [MAKE_BIAS, attention], ["import torch.nn.functional as F"])


def _module(plane: Plane, functions: list[str], imports: list[str] | None = None) -> str:
    mask = MaskFunction.of(plane)
    constants = [f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}"]
    positions = ["q = torch.arange(Q_LEN, device=device)[:, None]", "k = torch.arange(KV_LEN, device=device)"]
    if len(plane.masks) > 1:
        batch, heads = plane.index.shape
        positions += [
            f"b = torch.arange({batch}, device=device)[:, None, None, None]",
            f"h = torch.arange({heads}, device=device)[:, None, None]",
        ]
        shape = f"{batch}, {heads}, Q_LEN, KV_LEN"
    else:
        shape = "Q_LEN, KV_LEN"
    text = "\n".join(mask.body)
    positions = [line for line in positions if re.search(rf"\b{line[0]}\b", text)]
    body = [*mask.to_device, *positions, *mask.body]
    last = max(n for n, line in enumerate(body) if line.startswith("return"))
    body[last] = body[last].replace("return", "mask =")
    body.append(f"return mask.expand({shape})")
    make = f'def make_mask(device="cpu"):\n    """True where a query sees a key."""\n{indented(body)}\n'
    return module(plane.title, ["import torch", *(imports or [])], [*mask.tables, *constants], [make, *functions])


MAKE_BIAS = '''\
def make_bias(dtype=torch.float32, device="cpu"):
    """0 where a query sees a key, else -inf: added to the scores."""
    bias = torch.zeros((), dtype=dtype, device=device)
    return bias.masked_fill(~make_mask(device), float("-inf"))
'''

ATTENTION = '''\
def attention(q, k, v, scale=None):
    """Attention of (B, H, S, D) tensors."""
    if (q.shape[2], k.shape[2]) != (Q_LEN, KV_LEN):
        raise ValueError(f"the mask is for {Q_LEN} queries and {KV_LEN} keys")
    gqa = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, MASK, scale=scale, enable_gqa=gqa
    )
'''

EMPTY_ROWS = """\
    # A query that sees nothing has the output 0, not the mean of everything.
    return torch.where(mask.any(-1, keepdim=True), out, 0)
"""
