"""Target ``hstu``, and the way in: the interval array of NVIDIA's HSTU attention.

Format: ``func_tensor`` of cuDNN Frontend's HSTU attention (``NVIDIA/cudnn-frontend``, ``python/cudnn/hstu_attention/
api.py``): int32 ``(1, n_func, total_q + 256)`` with an odd ``n_func``. Query row i sees the keys
``[0, F0) ∪ [F1, F2) ∪ [F3, F4) …``. The 256 extra rows spare the kernel a bounds test; here they see nothing. All
heads share one mask. At the version looked at, masks of this kind take at most 65,536 keys and no more queries than
keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmask_lab.compiler.intervals import Int32s, IntervalTable
from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, one_mask_only
from cmask_lab.interop.torch_source import module
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import from_table

PADDING_ROWS = 256
KEY_LIMIT = 64 * 1024


def obstacle(plane: Plane) -> str | None:
    """Why the kernel can't take the mask; None if it can."""
    if plane.kv_len > KEY_LIMIT:
        return f"there are {plane.kv_len} keys; the kernel takes interval arrays for at most {KEY_LIMIT}"
    if plane.q_len > plane.kv_len:
        return f"there are {plane.q_len} queries and {plane.kv_len} keys; the kernel takes no more queries than keys"
    return one_mask_only(plane, "HSTU attention")


def source(plane: Plane) -> str:
    """A module with ``func_tensor(device)``, for the argument of that name."""
    values = encoded(plane.table)
    tables = [
        f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}",
        "# Row n of these numbers is F[n] of every query.",
        *int_table("FUNC", values),
    ]
    if not plane.q_len:
        tables[-1] = f"FUNC = torch.zeros({len(values)}, 0, dtype=torch.int32)"
    return module(plane.title, ["import torch"], tables, [FUNC_TENSOR.replace("PADDING", str(PADDING_ROWS))])


def encoded(table: IntervalTable) -> Int32s:
    """int32 ``(n_func, q_len)``: the smallest odd ``n_func`` that holds the row with most intervals.

    >>> encoded(IntervalTable.from_dense([[True, False, True], [False, True, False]])).tolist()
    [[1, 0], [2, 1], [3, 2]]
    """
    from_zero = table.start == 0
    row = table.rows_per_interval()
    first = np.zeros(table.q_len, np.int32)
    first[row[from_zero]] = table.stop[from_zero]
    row, start, stop = row[~from_zero], table.start[~from_zero], table.stop[~from_zero]
    count = np.bincount(row, minlength=table.q_len)
    values = np.zeros((1 + 2 * int(count.max(initial=0)), table.q_len), np.int32)
    values[0] = first
    place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    values[1 + 2 * place, row] = start
    values[2 + 2 * place, row] = stop
    return values


def from_hstu(func_tensor: Any, q_len: int, kv_len: int | None = None) -> Mask:
    """The mask of an HSTU interval array.

    Args:
        func_tensor: integers ``(1, n_func, at least q_len)`` or ``(n_func, at least q_len)``, ``n_func`` odd.
        kv_len: ``q_len`` if not given.

    Raises:
        ValueError: a shape that the format doesn't have.

    >>> from_hstu([[1, 2, 1], [0, 0, 2], [0, 0, 3]], 3).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 0, 1]])
    """
    values = np.asarray(func_tensor)
    if values.ndim == 3 and len(values) == 1:
        values = values[0]
    rows = integer(q_len, "from_hstu: q_len")
    keys = rows if kv_len is None else integer(kv_len, "from_hstu: kv_len")
    if values.ndim != 2 or values.shape[0] % 2 == 0 or values.shape[1] < rows or values.dtype.kind not in "iu":
        raise ValueError(
            f"from_hstu: expected integers (1, n_func, {rows} or more) with an odd n_func, "
            f"got {values.dtype} of shape {np.shape(func_tensor)}"
        )
    values = values[:, :rows].astype(np.int64)
    starts = np.concatenate([np.zeros((1, rows), np.int64), values[1::2]])
    row = np.broadcast_to(np.arange(rows), starts.shape)
    row, start, stop = (part.reshape(-1) for part in (row, starts, values[0::2]))
    return from_table(IntervalTable.from_intervals(row, start, stop, rows, keys))


FUNC_TENSOR = '''\
def func_tensor(device="cpu"):
    """int32 (1, n_func, Q_LEN + PADDING): query i sees [0, F0), [F1, F2), [F3, F4) …"""
    padded = torch.zeros(1, len(FUNC), Q_LEN + PADDING, dtype=torch.int32, device=device)
    padded[0, :, :Q_LEN] = FUNC
    return padded
'''
