"""Masks of inference: decoding, chunked prefill, batches of both, and trees of draft tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    register,
)
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import tree

CACHED = count("keys", "keys in the cache", slider=32768)
OFFSET = (
    "Query i stands at position cached + i (bottom-right, as FlashAttention aligns causal masks since 2.1). The same "
    "rows come from the mask of the whole sequence with q_start=cached."
)


@register(
    title="Decoding",
    formula="j ≤ C + i, and with a window j > C + i − W",
    source="FlashAttention, github.com/Dao-AILab/flash-attention",
    convention=OFFSET,
    parameters={
        "cached": CACHED,
        "new": count("tokens", "new tokens, the queries", least=1, slider=16),
        "window": count("keys", "keys in a sliding window, the query's own among them; 0 for causal", slider=8192),
    },
)
def decode(cached: int = 1024, new: int = 1, window: int = 0) -> Mask:
    """A few new tokens look back at a cache.

    >>> draw(decode(cached=4, new=2))
    # # # # # .
    # # # # # #
    """
    return _offset(cached, new, window)


@register(
    title="Chunked prefill",
    formula="j ≤ C + i, and with a window j > C + i − W",
    source="Sarathi, arXiv:2308.16369",
    convention=OFFSET,
    parameters={
        "cached": CACHED,
        "chunk": count("tokens", "tokens of this chunk, the queries", least=1, slider=8192),
        "window": count("keys", "keys in a sliding window, the query's own among them; 0 for causal", slider=8192),
    },
)
def chunked_prefill(cached: int = 1024, chunk: int = 512, window: int = 0) -> Mask:
    """A long prompt is read piece by piece; a piece sees those before it, and itself causally.

    >>> draw(chunked_prefill(cached=2, chunk=3))
    # # # . .
    # # # # .
    # # # # #
    """
    return _offset(cached, chunk, window)


@register(
    title="Continuous batching",
    formula="same sequence and j ≤ C + i, positions inside the sequence",
    source="Sarathi, arXiv:2308.16369",
    convention=OFFSET + " Queries of all sequences stand one after another, and so do their keys.",
    parameters={
        "cached": ints("keys", "keys in the cache of every sequence"),
        "new": ints("tokens", "new tokens of every sequence: 1 decodes, more is a piece of a prompt", least=1),
    },
)
def continuous_batching(cached: Sequence[int] = (700, 0, 250), new: Sequence[int] = (1, 256, 1)) -> Mask:
    """Several sequences in one call: some decode one token, others read a piece of their prompt.

    >>> draw(continuous_batching(cached=[3, 0], new=[1, 2]))
    # # # # . .
    . . . . # .
    . . . . # #
    """
    if len(cached) != len(new):
        raise ValueError(f"continuous_batching: {len(cached)} caches and {len(new)} new; give one of each a sequence")
    result: Mask | None = None
    query = key = 0
    for before, tokens in zip(cached, new, strict=True):
        box = {"q": (query, query + tokens), "k": (key, key + before + tokens)}
        one = regions.band(None, before + 1).at(**box)
        result = one if result is None else result | one
        query, key = box["q"][1], box["k"][1]
    assert result is not None  # a list of integers is never empty
    return result


@register(
    title="Tree attention",
    formula="j < C and j ≤ i, or j = i or j an ancestor of i",
    source="SpecInfer, arXiv:2305.09781; EAGLE, arXiv:2401.15077",
    intervals=lambda p: _most_intervals(p["context"], p["parents"]),
    convention="Rows of the context are causal; to verify the tree alone compile with q_start=context.",
    parameters={
        "context": count("tokens", "length of the context", slider=8192),
        "parents": ints(
            "", "for every draft token the number of its parent, -1 for those behind the context", least=-1
        ),
    },
)
def tree_attention(context: int = 256, parents: Sequence[int] = (-1, -1, 0, 0, 1, 1, 2, 2, 3)) -> Mask:
    """Speculative decoding verifies a tree of draft tokens at once: each sees the context and its own branch.

    >>> draw(tree_attention(context=2, parents=[-1, 0, 0, 1]))
    # . . . . .
    # # . . . .
    # # # . . .
    # # # # . .
    # # # . # .
    # # # # . #
    """
    nodes = (context, context + len(parents))
    branches = tree(parents).at(q=nodes, k=nodes).named("tree")
    if not context:
        return branches
    past = regions.causal() & regions.rect(q=(0, nodes[1]), k=(0, context))
    return past.named("context") | branches


@register(
    title="Medusa tree",
    formula="j < C and j ≤ i, or j = i or j an ancestor of i; level l has ∏ branching[:l] nodes",
    source="Medusa, arXiv:2401.10774",
    intervals=lambda p: _most_intervals(p["context"], regular_tree(p["branching"])),
    convention="The tree is regular, its nodes stand level by level. Rows of the context are causal; to verify the "
    "tree alone compile with q_start=context.",
    parameters={
        "context": count("tokens", "length of the context", slider=8192),
        "branching": ints("tokens", "candidates of every head: children of each node, level by level", least=1),
    },
)
def medusa_tree(context: int = 256, branching: Sequence[int] = (4, 3, 2)) -> Mask:
    """Every head proposes a few tokens; the tree holds all combinations.

    >>> draw(medusa_tree(context=1, branching=[2, 2]))
    # . . . . . .
    # # . . . . .
    # . # . . . .
    # # . # . . .
    # # . . # . .
    # . # . . # .
    # . # . . . #
    """
    return tree_attention(context, regular_tree(branching))


def regular_tree(branching: Sequence[int]) -> list[int]:
    """Parents of a tree whose nodes of level ``l`` have ``branching[l]`` children, numbered level by level.

    >>> regular_tree([2, 2])
    [-1, -1, 0, 0, 1, 1]
    """
    parents: list[int] = []
    level = [-1]
    for children in branching:
        first = len(parents)
        parents += [node for node in level for _ in range(children)]
        level = list(range(first, len(parents)))
    return parents


def _offset(cached: int, new: int, window: int) -> Mask:
    rows = regions.band(cached + 1 - window if window else None, cached + 1)
    return rows & regions.rect(q=(0, new), k=(0, cached + new))


def _most_intervals(context: int, parents: Sequence[int]) -> int:
    """The most intervals in a row of a tree: runs of consecutive nodes on a path, and the context if it is apart."""
    most = 1
    for node in range(len(parents)):
        path = []
        while node >= 0:
            path.append(node)
            node = parents[node]
        path.sort()
        apart = sum(after != before + 1 for before, after in pairwise(path))
        most = max(most, 1 + apart + (context > 0 and path[0] > 0))
    return most
