"""Block shapes: how much of a tile one program step takes, by dtype, head dimension and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Blocks:
    """One launch configuration: queries and keys of a step, warps, and stages of the software pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


FORWARD = (
    Blocks(128, 128, 8, 3),  # 509 TFLOP/s causal on an H200 at D=128, bfloat16, 32768 tokens
    Blocks(128, 128, 8, 2),
    Blocks(128, 64, 8, 3),
    Blocks(128, 64, 8, 2),
    Blocks(64, 64, 4, 3),
    Blocks(64, 64, 4, 2),
    Blocks(64, 32, 4, 2),
    Blocks(32, 32, 4, 2),
    Blocks(32, 32, 4, 1),
)
"""From the most work a step to the least; the first one that fits is taken."""

SPLIT_KEYS = (
    Blocks(64, 128, 4, 3),
    Blocks(64, 64, 4, 3),
    Blocks(64, 64, 4, 2),
    Blocks(64, 32, 4, 2),
    Blocks(32, 128, 4, 3),
    Blocks(32, 64, 4, 3),
    Blocks(32, 64, 4, 2),
    Blocks(32, 32, 4, 2),
    Blocks(16, 128, 4, 3),
    Blocks(16, 64, 4, 3),
    Blocks(16, 64, 4, 2),
    Blocks(16, 32, 4, 2),
    Blocks(16, 32, 4, 1),
)
"""Queries here are rows of a program, of one or several heads. Not measured yet."""

BACKWARD_KEYS = (
    Blocks(64, 128, 8, 2),
    Blocks(64, 64, 8, 2),
    Blocks(32, 64, 8, 2),
    Blocks(32, 64, 4, 2),
    Blocks(32, 32, 4, 2),
    Blocks(32, 32, 4, 1),
)

BACKWARD_QUERIES = (
    Blocks(128, 64, 8, 3),
    Blocks(128, 64, 8, 2),
    Blocks(64, 64, 4, 2),
    Blocks(64, 32, 4, 2),
    Blocks(32, 32, 4, 2),
    Blocks(32, 32, 4, 1),
)

FLOAT32_SIDE = 64
"""float32 products don't run on matrix units with full precision; larger blocks would only spill registers."""

REGISTERS = 176
"""Accumulators and scores that a thread may hold, of 255 registers."""

RESERVED_BYTES = 2048
"""Shared memory left for barriers and reductions."""

SHARED_BYTES = 227 * 1024
"""Shared memory of a program on sm_90 and sm_100; stands in where there is no device to ask (the interpreter)."""


TENSOR_MEMORY_BYTES = 4096
"""What the compiler adds from sm_100 on, beyond RESERVED_BYTES, to stage operands through tensor memory."""


def shared_limit(device: torch.device) -> int:
    """Bytes of shared memory that one program may fill with blocks on a device."""
    if device.type != "cuda":
        return SHARED_BYTES
    properties = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_block_optin - (TENSOR_MEMORY_BYTES if properties.major >= 10 else 0)


def choose(
    kind: str, dtype: torch.dtype, head: int, value: int, tile: tuple[int, int], shared_bytes: int = SHARED_BYTES
) -> Blocks:
    """The blocks of a kernel: the first candidate inside the tile whose buffers and accumulators fit.

    Args:
        kind: a key of :data:`KINDS`.
        head, value: head dimensions, padded.
        tile: ``(q_tile, kv_tile)`` of the compiled mask; for "split_keys" the rows that there are instead of q_tile.
        shared_bytes: of the device.

    >>> choose("forward", torch.bfloat16, 128, 128, (128, 128))
    Blocks(queries=128, keys=128, warps=8, stages=3)
    >>> choose("forward", torch.bfloat16, 256, 256, (128, 128))
    Blocks(queries=128, keys=64, warps=8, stages=2)
    """
    candidates, needs = KINDS[kind]
    inside = [
        blocks
        for blocks in candidates
        if blocks.queries <= tile[0]
        and blocks.keys <= tile[1]
        and (dtype != torch.float32 or max(blocks.queries, blocks.keys) <= FLOAT32_SIDE)
    ]
    for blocks in inside:
        elements, registers = needs(blocks, head, value)
        if elements * dtype.itemsize + RESERVED_BYTES <= shared_bytes and registers / (32 * blocks.warps) <= REGISTERS:
            return blocks
    return inside[-1]


def _forward_needs(blocks: Blocks, head: int, value: int) -> tuple[int, int]:
    """Elements in shared memory (Q once, K and V in every stage) and float32 registers of the program."""
    shared = blocks.queries * head + blocks.stages * blocks.keys * (head + value)
    return shared, blocks.queries * (value + blocks.keys)


def _keys_needs(blocks: Blocks, head: int, value: int) -> tuple[int, int]:
    """K, V and the gradient of the scores once, Q and dO in every stage; dK, dV, and one piece of scores."""
    shared = blocks.keys * (head + value + blocks.queries) + blocks.stages * blocks.queries * (head + value)
    return shared, blocks.keys * (head + value + blocks.queries)


def _queries_needs(blocks: Blocks, head: int, value: int) -> tuple[int, int]:
    """Q, dO and the gradient of the scores once, K and V in every stage; dQ, scores and their gradient."""
    shared = blocks.queries * (head + value + blocks.keys) + blocks.stages * blocks.keys * (head + value)
    return shared, blocks.queries * (head + 2 * blocks.keys)


Needs = Callable[[Blocks, int, int], tuple[int, int]]

KINDS: dict[str, tuple[tuple[Blocks, ...], Needs]] = {
    "forward": (FORWARD, _forward_needs),
    "split_keys": (SPLIT_KEYS, _forward_needs),
    "backward_keys": (BACKWARD_KEYS, _keys_needs),
    "backward_queries": (BACKWARD_QUERIES, _queries_needs),
}
