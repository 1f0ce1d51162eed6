"""FlexAttention's ``mask_mod`` → our mask: evaluated in bands of rows, kept as intervals.

The function is called on every (query, key) pair of the plane once and on nothing outside it, so a table that it looks
up may be exactly as long as the sequence. What is held at any time is one band: ``BAND_CELLS`` pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.masks import per_batch, per_head
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import Explicit, from_table

if TYPE_CHECKING:
    import torch

    MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]

BAND_CELLS = 1 << 21
"""Pairs evaluated at once. An int64 temporary of the function takes 16 MB, so a dozen live ones stay below 256 MB."""

SAMPLES = 32
"""Pairs at which a function that only runs on whole bands is compared with itself called on single positions."""


def from_mask_mod(
    mask_mod: MaskMod,
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
    device: str = "cpu",
) -> Mask:
    """The mask of a FlexAttention ``mask_mod``, as explicit intervals.

    The function is evaluated as FlexAttention evaluates it (``torch.nn.attention.flex_attention.create_mask``, under
    ``vmap``); one that ``vmap`` can't run, say because it asks NumPy, is called on whole bands of positions instead.
    Time goes with ``q_len * kv_len``, memory with one band of two million pairs.

    Args:
        mask_mod: ``(b, h, q_idx, kv_idx) → bool``, each an integer tensor.
        kv_len: ``q_len`` if not given.
        batch, heads: evaluate for this many batch entries and heads and return ``per_batch``, ``per_head`` or one in
            the other. Not given: the function is asked for entry 0 and head 0 alone.
        device: where the position tensors are made; that of the tables which the function looks up.

    Raises:
        TypeError: the function does not return bools.
        ValueError: the function can't be evaluated; the message quotes its own error.

    >>> from_mask_mod(lambda b, h, q, k: q >= k, 3).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    >>> from_mask_mod(lambda b, h, q, k: q - k == h, 2, heads=2)
    cm.per_head([cm.explicit([0, 1, 2], [0, 1], [1, 2]), cm.explicit([0, 0, 1], [0], [1])])
    """
    if not callable(mask_mod):
        raise TypeError(f"from_mask_mod: {mask_mod!r} is not a function (b, h, q_idx, kv_idx) → bool")
    q_len = integer(q_len, "from_mask_mod: q_len")
    kv_len = q_len if kv_len is None else integer(kv_len, "from_mask_mod: kv_len")
    entries = 1 if batch is None else integer(batch, "from_mask_mod: batch", least=1)
    per_entry = 1 if heads is None else integer(heads, "from_mask_mod: heads", least=1)
    evaluate = _Evaluation(mask_mod, device)
    masks = [[_explicit(evaluate, b, h, q_len, kv_len) for h in range(per_entry)] for b in range(entries)]
    each: list[Mask] = [per_head(row) if heads is not None else row[0] for row in masks]
    return per_batch(each) if batch is not None else each[0]


def _explicit(evaluate: _Evaluation, b: int, h: int, q_len: int, kv_len: int) -> Explicit:
    rows_at_once = max(BAND_CELLS // max(kv_len, 1), 1)
    tables = [IntervalTable.empty(0, kv_len)]
    for q in range(0, q_len, rows_at_once):
        q_stop = min(q + rows_at_once, q_len)
        row, start, stop = [], [], []
        for k in range(0, kv_len, BAND_CELLS):
            part = IntervalTable.from_dense(evaluate.band(b, h, (q, q_stop), (k, min(k + BAND_CELLS, kv_len))))
            row.append(part.rows_per_interval())
            start.append(part.start.astype(np.int64) + k)
            stop.append(part.stop.astype(np.int64) + k)
        if row:
            rows, starts, stops = (np.concatenate(part) for part in (row, start, stop))
            tables.append(IntervalTable.from_intervals(rows, starts, stops, q_stop - q, kv_len))
        else:
            tables.append(IntervalTable.empty(q_stop - q, kv_len))
    return from_table(IntervalTable.concatenate(tables))


class _Evaluation:
    """One function, and the way of calling it that was found to work."""

    def __init__(self, mask_mod: MaskMod, device: str):
        self.mask_mod = mask_mod
        self.device = device
        self.way: Callable[..., torch.Tensor] | None = None

    def band(self, b: int, h: int, q: tuple[int, int], k: tuple[int, int]) -> np.ndarray:
        """bool ``(q[1] - q[0], k[1] - k[0])``: the function on these queries and keys."""
        ways = [self.way] if self.way is not None else [self._mapped, self._broadcast]
        errors: list[Exception] = []
        for way in ways:
            try:
                cells = way(b, h, q, k)
            except _NotBool:
                raise
            except Exception as error:  # whatever the user's function raises is quoted below
                errors.append(error)
            else:
                self.way = way
                return cells.cpu().numpy()
        reasons = "; ".join(f"{type(error).__name__}: {error}" for error in errors)
        raise ValueError(
            f"from_mask_mod: the function failed on queries [{q[0]}, {q[1]}) and keys [{k[0]}, {k[1]}): {reasons}. "
            f"It must take integer tensors (b, h, q_idx, kv_idx) without branching on their values"
        ) from errors[0]

    def _mapped(self, b: int, h: int, q: tuple[int, int], k: tuple[int, int]) -> torch.Tensor:
        """FlexAttention's own evaluation, on positions moved to the band."""
        from torch.nn.attention.flex_attention import create_mask

        def moved(b_idx: torch.Tensor, h_idx: torch.Tensor, q_idx: torch.Tensor, k_idx: torch.Tensor) -> torch.Tensor:
            return self._checked(self.mask_mod(b_idx + b, h_idx + h, q_idx + q[0], k_idx + k[0]))

        return create_mask(moved, 1, 1, q[1] - q[0], k[1] - k[0], self.device)[0, 0]

    def _broadcast(self, b: int, h: int, q: tuple[int, int], k: tuple[int, int]) -> torch.Tensor:
        """The function called once, on a column of queries and a row of keys.

        A function that reduces over a dimension of its own would take ours for it, so some pairs are asked singly.
        """
        import torch

        entry, head = torch.tensor(b, device=self.device), torch.tensor(h, device=self.device)
        queries, keys = (torch.arange(*ends, device=self.device) for ends in (q, k))
        shape = len(queries), len(keys)
        cells = torch.broadcast_to(self._checked(self.mask_mod(entry, head, queries[:, None], keys[None, :])), shape)
        random = np.random.default_rng(0)
        for row, column in random.integers(0, shape, size=(SAMPLES, 2)).tolist():
            single = self._checked(self.mask_mod(entry, head, queries[row], keys[column]))
            if bool(single) != bool(cells[row, column]):
                raise RuntimeError(
                    f"called on many positions at once it gives another answer than on query {q[0] + row} and "
                    f"key {k[0] + column} alone"
                )
        return cells

    @staticmethod
    def _checked(result: Any) -> torch.Tensor:
        import torch

        tensor = torch.as_tensor(result)
        if tensor.dtype != torch.bool:
            raise _NotBool(f"from_mask_mod: the function returned {tensor.dtype}; a mask_mod returns bools")
        return tensor


class _NotBool(TypeError):
    """The function ran and returned something else than bools."""
