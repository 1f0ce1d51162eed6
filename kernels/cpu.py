"""The CPU backend: work on the visible tiles only, forward and backward.

For each query tile the keys it sees, full and partial tiles alike, are brought together (as a view if they are
neighbours) and multiplied at once for many heads; patterns hide cells of the partial tiles. Plain softmax goes through
PyTorch's fused kernel (:mod:`cmask_lab.kernels.cpu_fused`); the rest (SiLU, softcap, a gradient of the log-sum-exp,
values of another head dimension) through the BLAS that PyTorch has. The backward pass computes the weights again from
the log-sum-exp. float16 and bfloat16 are computed in float32, float64 in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from cmask_lab.kernels import cpu_fused
from cmask_lab.kernels.cpu_rows import TileRow, add_to_keys, hide, joined, pattern_words, tile_rows
from cmask_lab.kernels.registry import Options, Problem
from cmask_lab.kernels.sinks import sink_gradient

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask

SCORES_AT_ONCE = 1 << 20
"""Scores held at a time outside the fused kernel (4 MiB of float32): fewer calls against what the caches hold."""


@dataclass(frozen=True)
class Piece:
    """Some query rows of a tile, for some of the kv heads, with all the keys they see.

    Attributes:
        row: the tile row.
        units: the kv heads (of all batch entries, one after another).
        queries: the query positions.
        k, v: ``(units, keys, D)`` and ``(units, keys, Dv)``.
    """

    row: TileRow
    units: slice
    queries: slice
    k: torch.Tensor
    v: torch.Tensor


class Part:
    """The query heads that use one mask: ``lanes`` of the group of each kv head in ``units``.

    Attributes:
        rows: the tile rows of the mask that see anything.
        blind: bool ``(Sq,)``: queries that see nothing.
    """

    def __init__(
        self, units: list[int], lanes: list[int], shape: tuple[int, int], rows: list[TileRow], blind: torch.Tensor
    ):
        self.rows, self.blind = rows, blind
        everything = (len(units), len(lanes)) == shape
        self._units = None if everything else torch.tensor(units)[:, None]
        self._lanes = torch.tensor(lanes)
        self._shape = shape

    def of_queries(self, tensor: torch.Tensor) -> torch.Tensor:
        """``(B, H, Sq, …)`` to ``(units, lanes, Sq, …)``."""
        grouped = tensor.reshape(*self._shape, *tensor.shape[2:])
        return grouped if self._units is None else grouped[self._units, self._lanes]

    def of_keys(self, tensor: torch.Tensor) -> torch.Tensor:
        """``(B, Hkv, Skv, …)`` to ``(units, Skv, …)``."""
        flat = tensor.flatten(0, 1)
        return flat if self._units is None else flat[self._units[:, 0]]

    def put_queries(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """The way back of :meth:`of_queries`, into a contiguous target."""
        grouped = target.view(*self._shape, *target.shape[2:])
        grouped[... if self._units is None else (self._units, self._lanes)] = value.to(target.dtype)

    def add_keys(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """Added to what :meth:`of_keys` took, in a contiguous target; parts may share kv heads."""
        target.view(self._shape[0], *target.shape[2:])[... if self._units is None else self._units[:, 0]] += value

    def pieces(self, k: torch.Tensor, v: torch.Tensor) -> Iterator[Piece]:
        """All pieces that see anything; their scores are at most ``SCORES_AT_ONCE``, or one row of one unit."""
        units, lanes = len(k), len(self._lanes)
        for row in self.rows:
            rows = min(row.last - row.first, max(SCORES_AT_ONCE // (row.keys * lanes), 1))
            step = max(SCORES_AT_ONCE // (row.keys * lanes * rows), 1)
            for first_unit in range(0, units, step):
                some = slice(first_unit, min(first_unit + step, units))
                own_k, own_v = joined(k[some], row), joined(v[some], row)
                for first in range(row.first, row.last, rows):
                    yield Piece(row, some, slice(first, min(first + rows, row.last)), own_k, own_v)


def _of(tensor: torch.Tensor, piece: Piece) -> torch.Tensor:
    """A piece of ``(units, lanes, Sq, …)``, lanes and queries as the rows of one matrix: ``(units, rows, …)``."""
    return tensor[piece.units, :, piece.queries].flatten(1, 2)


def _into(target: torch.Tensor, piece: Piece, value: torch.Tensor) -> None:
    part = target[piece.units, :, piece.queries]
    part.copy_(value.view(part.shape))


def _hide(scores: torch.Tensor, piece: Piece, patterns: np.ndarray, value: float) -> None:
    """:func:`hide` for the scores ``(units, rows, keys)`` of a piece."""
    queries = piece.queries.stop - piece.queries.start
    hide(scores.view(len(scores), -1, queries, piece.row.keys), piece.row, piece.queries, patterns, value)


class Cpu:
    """The backend."""

    name = "cpu"

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[CompiledMask, list[tuple[list[TileRow], torch.Tensor]]] = WeakKeyDictionary()

    def unsupported(self, problem: Problem) -> str | None:
        """None: it runs everything that is on a CPU."""
        return None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; see :class:`cmask_lab.kernels.registry.Backend`."""
        dtype, patterns = _working_dtype(q), pattern_words(compiled)
        out = q.new_zeros(*q.shape[:3], v.shape[3])
        lse = torch.full(q.shape[:3], float("-inf"), dtype=dtype)
        if options.sinks is not None:
            lse.copy_(options.sinks[None, :, None].expand_as(lse))
        # Before anything is seen the log-sum-exp of a row is its sink alone.
        only_sinks = lse.clone() if options.sinks is not None else None
        fused = _fused_kernel_knows(q, v, options)
        q = q.to(dtype)
        if not fused:  # which converts only what a tile row sees: of a long cache a window
            k, v = k.to(dtype), v.to(dtype)
        scaled = q if fused else q * options.scale
        for part in self._parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k), part.of_keys(v)
            if fused:
                part_out, part_lse = cpu_fused.forward(part_q, part_k, part_v, part.rows, patterns, options.scale)
                part_lse.masked_fill_(part.blind, float("-inf"))
                if only_sinks is not None:
                    total = torch.logaddexp(part_lse, part.of_queries(only_sinks))
                    part_out *= torch.exp(part_lse - total)[..., None]
                    part_lse = total
                part.put_queries(out, part_out)
                part.put_queries(lse, part_lse)
                continue
            part_out, part_lse = part_q.new_zeros(*part_q.shape[:3], v.shape[3]), part.of_queries(lse).clone()
            sink = None if only_sinks is None else part.of_queries(only_sinks)[..., None]
            for piece in part.pieces(part_k, part_v):
                weights = _scores(_of(part_q, piece), piece.k, options)
                if options.activation == "silu":
                    weights.mul_(torch.sigmoid(weights)).div_(options.normalizer)
                    _hide(weights, piece, patterns, 0.0)
                    _into(part_out, piece, weights @ piece.v)
                    continue
                _hide(weights, piece, patterns, float("-inf"))
                top = weights.amax(-1, keepdim=True)
                if sink is not None:
                    top = torch.maximum(top, _of(sink, piece))
                # A row that sees nothing: exp(-inf - 0) is 0, where -inf - -inf would be NaN.
                top = top.masked_fill_(top == float("-inf"), 0.0)
                weights.sub_(top).exp_()
                total = weights.sum(-1, keepdim=True)
                if sink is not None:
                    total += torch.exp(_of(sink, piece) - top)
                _into(part_out, piece, (weights @ piece.v).div_(torch.where(total > 0, total, 1.0)))
                _into(part_lse, piece, top + torch.log(total))
            part.put_queries(out, part_out)
            part.put_queries(lse, part_lse)
        return out, None if options.activation == "silu" else lse

    def backward(
        self,
        grad_out: torch.Tensor,
        grad_lse: torch.Tensor | None,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        compiled: CompiledMask,
        options: Options,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of q, k, v and sinks; see :class:`cmask_lab.kernels.registry.Backend`. Always deterministic."""
        dtype, patterns = _working_dtype(q), pattern_words(compiled)
        gradients = tuple(torch.zeros(tensor.shape, dtype=dtype) for tensor in (q, k, v))
        grad_out = grad_out.to(dtype)
        grad_sinks = None
        finite_lse = statistics = None
        if lse is not None:
            delta = (grad_out * out).sum(-1)
            if grad_lse is not None:
                delta -= torch.where(lse == float("-inf"), 0.0, grad_lse)
            if options.sinks is not None:
                grad_sinks = sink_gradient(options.sinks, lse, delta)
            # In a row that sees nothing every score is -inf, and so is the lse; against 0 the weights become 0.
            finite_lse = torch.where(lse == float("-inf"), 0.0, lse)
            statistics = torch.stack([finite_lse, delta], -1)
        fused = grad_lse is None and _fused_kernel_knows(q, v, options)
        q_all, k_all, v_all = (tensor.to(dtype) for tensor in (q, k, v))
        scaled = q_all if fused else q_all * options.scale
        for part in self._parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k_all), part.of_keys(v_all)
            part_grad = part.of_queries(grad_out)
            if fused and finite_lse is not None:
                part_out, part_lse = part.of_queries(out.to(dtype)), part.of_queries(finite_lse)
                into_q, into_k, into_v = cpu_fused.backward(
                    part_grad, part_q, part_k, part_v, part_out, part_lse, part.rows, patterns, options.scale
                )
                part.put_queries(gradients[0], into_q)
                part.add_keys(gradients[1], into_k)
                part.add_keys(gradients[2], into_v)
                continue
            part_statistics = None if statistics is None else part.of_queries(statistics)
            into_q, into_k, into_v = torch.zeros_like(part_q), torch.zeros_like(part_k), torch.zeros_like(part_v)
            for piece in part.pieces(part_k, part_v):
                own_q, grad = _of(part_q, piece), _of(part_grad, piece)
                weights = _scores(own_q, piece.k, options)
                slope = 1 - (weights / options.softcap) ** 2 if options.softcap else None
                grad_scores = grad @ piece.v.mT
                if part_statistics is None:
                    gate = torch.sigmoid(weights)
                    grad_scores *= gate * (1 + weights * (1 - gate)) / options.normalizer
                    weights.mul_(gate).div_(options.normalizer)
                    _hide(weights, piece, patterns, 0.0)
                    _hide(grad_scores, piece, patterns, 0.0)
                else:
                    own_lse, own_delta = _of(part_statistics, piece).split(1, -1)
                    _hide(weights, piece, patterns, float("-inf"))
                    weights.sub_(own_lse).exp_()
                    grad_scores.sub_(own_delta).mul_(weights)
                if slope is not None:
                    grad_scores.mul_(slope)
                _into(into_q, piece, (grad_scores @ piece.k).mul_(options.scale))
                # q has been multiplied with the scale already.
                add_to_keys(into_k[piece.units], piece.row, grad_scores.mT @ own_q)
                add_to_keys(into_v[piece.units], piece.row, weights.mT @ grad)
            part.put_queries(gradients[0], into_q)
            part.add_keys(gradients[1], into_k)
            part.add_keys(gradients[2], into_v)
        grad_q, grad_k, grad_v = (gradient.to(q.dtype) for gradient in gradients)
        return grad_q, grad_k, grad_v, grad_sinks

    def _parts(self, q: torch.Tensor, k: torch.Tensor, compiled: CompiledMask) -> Iterator[Part]:
        """The problem cut by masks and heads."""
        (batch, heads), kv_heads = q.shape[:2], k.shape[1]
        if not q.numel() or not k.numel():
            return
        masks = self._known.get(compiled)
        if masks is None:
            blind = [torch.from_numpy(np.diff(table.row_ptr) == 0) for table in compiled.interval_tables]
            masks = self._known[compiled] = list(zip(tile_rows(compiled), blind, strict=True))
        index = np.broadcast_to(compiled.mask_index, (batch, heads)).reshape(batch * kv_heads, -1)
        users: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for unit, used in enumerate(index):
            for mask in np.unique(used):
                users.setdefault((int(mask), tuple(np.flatnonzero(used == mask).tolist())), []).append(unit)
        for (mask, lanes), units in users.items():
            yield Part(units, list(lanes), index.shape, *masks[mask])


BACKEND = Cpu()


def _fused_kernel_knows(q: torch.Tensor, v: torch.Tensor, options: Options) -> bool:
    return options.activation == "softmax" and not options.softcap and q.shape[-1] == v.shape[-1]


def _scores(q: torch.Tensor, k: torch.Tensor, options: Options) -> torch.Tensor:
    """``(units, rows, keys)``; q has been multiplied with the scale."""
    scores = q @ k.mT
    return scores.div_(options.softcap).tanh_().mul_(options.softcap) if options.softcap else scores


def _working_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
