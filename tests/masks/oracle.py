"""What a spec node means, cell by cell: written from the definitions alone, without intervals.

``sees(node, i, j)`` takes arrays of query and key positions that broadcast against each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Node = dict[str, Any]


def dense(node: Node, q_len: int, kv_len: int, q_start: int = 0) -> np.ndarray:
    """bool ``(q_len, kv_len)``: the node seen through a window."""
    i, j = np.arange(q_start, q_start + q_len)[:, None], np.arange(kv_len)[None, :]
    return np.broadcast_to(sees(node, i, j), (q_len, kv_len))


def sees(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Whether query ``i`` sees key ``j``; positions are at least 0."""
    i, j = np.broadcast_arrays(i, j)
    return MEANING[node["type"]](node, i, j)


def looked_up(values: Any, at: np.ndarray, beyond: int = -1) -> np.ndarray:
    """``values[at]``, and ``beyond`` behind the end."""
    return np.append(np.asarray(values, np.int64), beyond)[np.minimum(at, len(values))]


def within(side: list[int] | None, at: np.ndarray) -> np.ndarray:
    return np.ones(at.shape, bool) if side is None else (side[0] <= at) & (at < side[1])


def in_ranges(ranges: list[list[int]], at: np.ndarray) -> np.ndarray:
    return np.any([within(side, at) for side in ranges], axis=0)


def window(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    left = True if node["left"] is None else i - node["left"] <= j
    right = True if node["right"] is None else j <= i + node["right"]
    return np.ones(i.shape, bool) & left & right


def band(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    low = True if node["lo"] is None else node["lo"] <= j - i
    high = True if node["hi"] is None else j - i < node["hi"]
    return np.ones(i.shape, bool) & low & high


def documents(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    ids = node["ids"] if "ids" in node else [n for n, length in enumerate(node["lengths"]) for _ in range(length)]
    return (looked_up(ids, i) == looked_up(ids, j)) & (looked_up(ids, i) >= 0)


def tiles(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    matrix = np.array([[cell == "1" for cell in row] for row in node["rows"]])
    row, column = i // node["q_size"], j // node["k_size"]
    inside = (row < matrix.shape[0]) & (column < matrix.shape[1])
    return inside & matrix[np.minimum(row, matrix.shape[0] - 1), np.minimum(column, matrix.shape[1] - 1)]


def tree(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    parents = node["parents"]
    table = np.zeros((len(parents) + 1, len(parents) + 1), bool)
    for child in range(len(parents)):
        at = child
        while at >= 0:
            table[child, at] = True
            at = parents[at]
    return table[np.minimum(i, len(parents)), np.minimum(j, len(parents))]


def explicit(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    ptr, rows, keys = node["row_ptr"], len(node["row_ptr"]) - 1, max(node["stop"], default=0)
    table = np.zeros((rows + 1, keys + 1), bool)
    for row in range(rows):
        for n in range(ptr[row], ptr[row + 1]):
            table[row, node["start"][n] : node["stop"][n]] = True
    return table[np.minimum(i, rows), np.minimum(j, keys)]


def natten_axis(length: int, size: int, dilation: int, causal: bool) -> np.ndarray:
    """bool ``(length, length)``: the neighbours along one axis, each position's group written out."""
    table = np.zeros((length, length), bool)
    for at in range(length):
        group = [other for other in range(length) if other % dilation == at % dilation]
        place = group.index(at)
        if causal:
            window = group[max(place - size + 1, 0) : place + 1]
        else:
            first = place - size // 2
            first = max(first, 0)
            first = min(first, len(group) - size)
            window = group[first : first + size]
        table[at, window] = True
    return table


def grid(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    shape, kind = node["shape"], node["kind"]
    tokens = int(np.prod(shape))
    inside = (i < tokens) & (j < tokens)
    mine, theirs = (np.unravel_index(np.minimum(at, tokens - 1), shape) for at in (i, j))
    apart = [b - a for a, b in zip(mine, theirs, strict=True)]
    if kind == "disk":
        return inside & (sum(d**2 for d in apart) < node["radius"] ** 2)
    if kind == "box":
        return inside & np.all([abs(d) <= r for d, r in zip(apart, node["radii"], strict=True)], axis=0)
    if kind == "axial":
        axes = range(len(shape))
        alone = [np.all([apart[n] == 0 for n in axes if n != axis], axis=0) for axis in node["axes"]]
        return inside & np.any(alone, axis=0)
    if kind == "causal_time":
        return inside & (theirs[0] <= mine[0])
    near = [
        natten_axis(*axis)[a, b]
        for *axis, a, b in zip(shape, node["size"], node["dilation"], node["causal"], mine, theirs, strict=True)
    ]
    return inside & np.all(near, axis=0)


def at(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    inside = within(node["q"], i) & within(node["k"], j)
    return inside & sees(node["mask"], np.maximum(i - node["q"][0], 0), np.maximum(j - node["k"][0], 0))


def repeat(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    result, offset = np.zeros(i.shape, bool), 0
    masks = node.get("masks") or [node["mask"]] * len(node["sizes"])
    for size, mask in zip(node["sizes"], masks, strict=True):
        side = [offset, offset + size]
        result |= at({"mask": mask, "q": side, "k": side}, i, j)
        offset += size
    return result


def take(node: Node, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    inside = np.ones(i.shape, bool)
    if node["q"] is not None:
        inside, i = inside & (i < len(node["q"])), looked_up(node["q"], i, beyond=0)
    if node["k"] is not None:
        inside, j = inside & (j < len(node["k"])), looked_up(node["k"], j, beyond=0)
    return inside & sees(node["mask"], i, j)


MEANING = {
    "full": lambda node, i, j: np.ones(i.shape, bool),
    "empty": lambda node, i, j: np.zeros(i.shape, bool),
    "causal": lambda node, i, j: j <= i,
    "anticausal": lambda node, i, j: j >= i,
    "window": window,
    "band": band,
    "rect": lambda node, i, j: within(node["q"], i) & within(node["k"], j),
    "prefix": lambda node, i, j: j < node["n"],
    "sink": lambda node, i, j: (j < node["n"]) & (j <= i),
    "suffix": lambda node, i, j: j >= node["start"],
    "global_tokens": lambda node, i, j: in_ranges(node["ranges"], i) | in_ranges(node["ranges"], j),
    "documents": documents,
    "strided": lambda node, i, j: (i - j) % node["step"] == node["phase"],
    "tiles": tiles,
    "tree": tree,
    "explicit": explicit,
    "grid": grid,
    "and": lambda node, i, j: np.all([sees(arg, i, j) for arg in node["args"]], axis=0),
    "or": lambda node, i, j: np.any([sees(arg, i, j) for arg in node["args"]], axis=0),
    "minus": lambda node, i, j: sees(node["args"][0], i, j) & ~sees(node["args"][1], i, j),
    "not": lambda node, i, j: ~sees(node["arg"], i, j),
    "at": at,
    "repeat": repeat,
    "take": take,
    "transposed": lambda node, i, j: sees(node["mask"], j, i),
}
