"""The CPU backend: dense products on the visible tiles only, forward and backward, with the BLAS that PyTorch has.

For each query tile the keys it sees, full and partial tiles alike, are brought together (as a view if they are neighbours)
and multiplied at once for many heads; patterns hide cells of the partial tiles. The backward pass computes the weights again
from the log-sum-exp, query tile by query tile. float16 and bfloat16 are computed in float32, float64 in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from cmask_lab.kernels.registry import Options, Problem

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask

SCORES_AT_ONCE = 1 << 20
"""Scores held at a time (4 MiB of float32): fewer calls against what the caches hold."""


@dataclass(frozen=True)
class TileRow:
    """What one query tile sees.

    Attributes:
        first, last: its query positions ``[first, last)``.
        spans: key ranges ``[start, stop)`` that cover the non-empty tiles; the visible keys of the tile are those of all
            spans, one after another.
        keys: their number.
        partial: ``(column, pattern numbers)`` of neighbouring partial tiles; the column counts visible keys.
    """

    first: int
    last: int
    spans: tuple[tuple[int, int], ...]
    keys: int
    partial: tuple[tuple[int, tuple[int, ...]], ...]


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
    """The query heads that use one mask: ``lanes`` of the group of each kv head in ``units``."""

    def __init__(self, units: list[int], lanes: list[int], shape: tuple[int, int], rows: list[TileRow]):
        everything = (len(units), len(lanes)) == shape
        self._units = None if everything else torch.tensor(units)[:, None]
        self._lanes = torch.tensor(lanes)
        self._shape = shape
        self._rows = rows

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
        """Added to what :meth:`of_keys` took, in a contiguous target; other parts may have added to the same kv heads."""
        target.view(self._shape[0], *target.shape[2:])[... if self._units is None else self._units[:, 0]] += value

    def pieces(self, k: torch.Tensor, v: torch.Tensor) -> Iterator[Piece]:
        """All pieces that see anything; their scores are at most ``SCORES_AT_ONCE``, or one row of one unit."""
        units, lanes = len(k), len(self._lanes)
        for row in self._rows:
            rows = min(row.last - row.first, max(SCORES_AT_ONCE // (row.keys * lanes), 1))
            step = max(SCORES_AT_ONCE // (row.keys * lanes * rows), 1)
            for first_unit in range(0, units, step):
                some = slice(first_unit, min(first_unit + step, units))
                own_k, own_v = (_joined([t[some, start:stop] for start, stop in row.spans]) for t in (k, v))
                for first in range(row.first, row.last, rows):
                    yield Piece(row, some, slice(first, min(first + rows, row.last)), own_k, own_v)


def _of(tensor: torch.Tensor, piece: Piece) -> torch.Tensor:
    """A piece of ``(units, lanes, Sq, …)``, lanes and queries as the rows of one matrix: ``(units, rows, …)``."""
    return tensor[piece.units, :, piece.queries].flatten(1, 2)


def _into(target: torch.Tensor, piece: Piece, value: torch.Tensor) -> None:
    part = target[piece.units, :, piece.queries]
    part.copy_(value.view(part.shape))


def _add_to_keys(target: torch.Tensor, piece: Piece, value: torch.Tensor) -> None:
    first = 0
    for start, stop in piece.row.spans:
        target[piece.units, start:stop] += value[:, first : first + stop - start]
        first += stop - start


def _hide(scores: torch.Tensor, piece: Piece, patterns: np.ndarray, value: float) -> None:
    """Write ``value`` into the cells ``(units, rows, keys)`` that the patterns hide."""
    rows = slice(piece.queries.start - piece.row.first, piece.queries.stop - piece.row.first)
    by_lane = scores.view(len(scores), -1, rows.stop - rows.start, piece.row.keys)
    for column, numbers in piece.row.partial:
        hidden = ~np.unpackbits(patterns[list(numbers), rows].view(np.uint8), axis=2, bitorder="little").view(np.bool_)
        cells = torch.from_numpy(hidden.transpose(1, 0, 2).reshape(hidden.shape[1], -1))
        across = by_lane[..., column : column + cells.shape[1]]
        # The last tile of the plane may be cut off.
        across.masked_fill_(cells[:, : across.shape[-1]], value)


class Cpu:
    """The backend."""

    name = "cpu"

    def __init__(self) -> None:
        self._tile_rows: WeakKeyDictionary[CompiledMask, list[list[TileRow]]] = WeakKeyDictionary()

    def unsupported(self, problem: Problem) -> str | None:
        """None: it runs everything that is on a CPU."""
        return None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; see :class:`cmask_lab.kernels.registry.Backend`."""
        dtype, patterns = _working_dtype(q), _patterns(compiled)
        out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
        lse = torch.full(q.shape[:3], float("-inf"), dtype=dtype)
        if options.sinks is not None:
            lse.copy_(options.sinks[None, :, None].expand_as(lse))
        # Before anything is seen the log-sum-exp of a row is its sink alone.
        only_sinks = lse.clone() if options.sinks is not None else None
        scaled, k, v = q.to(dtype) * options.scale, k.to(dtype), v.to(dtype)
        for part in self._parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k), part.of_keys(v)
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
        dtype, patterns = _working_dtype(q), _patterns(compiled)
        gradients = tuple(torch.zeros(tensor.shape, dtype=dtype) for tensor in (q, k, v))
        grad_out = grad_out.to(dtype)
        silu = options.activation == "silu"
        grad_sinks = None
        if not silu:
            delta = (grad_out * out).sum(-1)
            if grad_lse is not None:
                delta -= torch.where(lse == float("-inf"), 0.0, grad_lse)
            if options.sinks is not None:
                grad_sinks = -(torch.exp(options.sinks.to(dtype)[None, :, None] - lse) * delta).sum((0, 2))
            # In a row that sees nothing every score is -inf, and so is the lse; against 0 the weights become 0.
            statistics = torch.stack([torch.where(lse == float("-inf"), 0.0, lse), delta], -1)
        scaled, k_all, v_all = q.to(dtype) * options.scale, k.to(dtype), v.to(dtype)
        for part in self._parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k_all), part.of_keys(v_all)
            part_grad = part.of_queries(grad_out)
            part_statistics = None if silu else part.of_queries(statistics)
            into_q, into_k, into_v = torch.zeros_like(part_q), torch.zeros_like(part_k), torch.zeros_like(part_v)
            for piece in part.pieces(part_k, part_v):
                own_q, grad = _of(part_q, piece), _of(part_grad, piece)
                weights = _scores(own_q, piece.k, options)
                slope = 1 - (weights / options.softcap) ** 2 if options.softcap else None
                grad_scores = grad @ piece.v.mT
                if silu:
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
                _add_to_keys(into_k, piece, grad_scores.mT @ own_q)
                _add_to_keys(into_v, piece, weights.mT @ grad)
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
        rows = self._tile_rows.get(compiled)
        if rows is None:
            rows = self._tile_rows[compiled] = _tile_rows(compiled)
        index = np.broadcast_to(compiled.mask_index, (batch, heads)).reshape(batch * kv_heads, -1)
        users: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for unit, masks in enumerate(index):
            for mask in np.unique(masks):
                users.setdefault((int(mask), tuple(np.flatnonzero(masks == mask).tolist())), []).append(unit)
        for (mask, lanes), units in users.items():
            yield Part(units, list(lanes), index.shape, rows[mask])


BACKEND = Cpu()


def _tile_rows(compiled: CompiledMask) -> list[list[TileRow]]:
    """For each mask its tile rows that see anything."""
    descriptor = compiled.descriptor
    arrays = {name: np.asarray(array) for name, array in descriptor.arrays().items() if name != "patterns"}
    q_tile, kv_tile = descriptor.q_tile, descriptor.kv_tile
    masks: list[list[TileRow]] = []
    for mask in range(descriptor.masks):
        rows = []
        for tile in range(descriptor.q_tiles):
            number = mask * descriptor.q_tiles + tile
            runs = slice(*arrays["run_ptr"][number : number + 2])
            parts = slice(*arrays["partial_ptr"][number : number + 2])
            tiles = arrays["partial_tile"][parts]
            starts = np.concatenate([arrays["run_start"][runs], tiles])
            stops = np.concatenate([arrays["run_stop"][runs], tiles + 1])
            if not len(starts):
                continue
            in_order = np.argsort(starts)
            starts, stops = starts[in_order], stops[in_order]
            opens = np.append(True, starts[1:] > stops[:-1])
            starts, stops = starts[opens], stops[np.append(opens[1:], True)]
            # Column of a partial tile among the visible keys: what the spans before it hold, and its place in its own.
            held = np.cumsum(stops - starts) - (stops - starts)
            span = np.searchsorted(starts, tiles, side="right") - 1
            columns = held[span] + tiles - starts[span]
            groups = np.split(np.arange(len(tiles)), np.flatnonzero(np.diff(columns) > 1) + 1) if len(tiles) else []
            patterns = arrays["partial_pattern"][parts]
            limits = np.minimum(stops * kv_tile, descriptor.kv_len)
            rows.append(
                TileRow(
                    first=tile * q_tile,
                    last=min((tile + 1) * q_tile, descriptor.q_len),
                    spans=tuple(zip((starts * kv_tile).tolist(), limits.tolist(), strict=True)),
                    keys=int((limits - starts * kv_tile).sum()),
                    partial=tuple((int(columns[g[0]]) * kv_tile, tuple(patterns[g].tolist())) for g in groups),
                )
            )
        masks.append(rows)
    return masks


def _scores(q: torch.Tensor, k: torch.Tensor, options: Options) -> torch.Tensor:
    """``(units, rows, keys)``; q has been multiplied with the scale."""
    scores = q @ k.mT
    return scores.div_(options.softcap).tanh_().mul_(options.softcap) if options.softcap else scores


def _patterns(compiled: CompiledMask) -> np.ndarray:
    """int32 ``(patterns, q_tile, kv_tile // 32)``."""
    return np.ascontiguousarray(compiled.descriptor.patterns)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _working_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
