"""Masks that train drafters, diffusion and multi-token models, and the shards of context parallelism."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    choice,
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    register,
)
from cmask_lab.masks.gallery.parts import pieces
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import documents

SPECFORGE = "github.com/sgl-project/SpecForge"


@register(
    title="Eagle3 training",
    formula="j < n and j ≤ i, or j ≥ n and j mod n = i",
    source=f"EAGLE-3, arXiv:2503.01840; the mask: {SPECFORGE}",
    intervals=lambda p: p["steps"],
    convention="Queries are the last step's; keys are those of all steps, one behind the other: not square.",
    parameters={
        "length": count("tokens", "length of the sequence: queries, and keys of one step", least=1, slider=8192),
        "steps": count("", "steps of training-time test", least=1, slider=16),
        "valid": count("tokens", "tokens that are not padding; 0 for all", slider=8192),
    },
)
def eagle3_training(length: int = 512, steps: int = 4, valid: int = 0) -> Mask:
    """A draft token sees the target's features causally, and its own place in every step of the draft.

    >>> draw(eagle3_training(length=3, steps=3))
    # . . # . . # . .
    # # . . # . . # .
    # # # . . # . . #
    """
    if valid > length:
        raise ValueError(f"eagle3_training: valid is {valid}; it must be at most the length, {length}")
    real = valid or length
    first = (regions.causal() & regions.rect(q=(0, real), k=(0, real))).named("first step")
    result: Mask = first
    for step in range(1, steps):
        box = {"q": (0, real), "k": (step * length, step * length + real)}
        result = result | regions.window(0).at(**box).named(f"step {step + 1}")
    return _padded(result, length, length * steps)


@register(
    title="DFlash training",
    formula="j < n and j < a(i), or j ≥ n and draft(i) = draft(j)",
    source=f"DFlash, arXiv:2602.06036; the mask: {SPECFORGE}",
    intervals=2,
    convention="Keys are the context, then the drafts; queries are the drafts alone. Context is seen strictly before "
    "the anchor.",
    parameters={
        "context": count("tokens", "length of the context", least=1, slider=8192),
        "anchors": ints("tokens", "place in the context where each draft starts"),
        "draft": count("tokens", "tokens of a draft", least=1, slider=64),
    },
)
def dflash_training(context: int = 512, anchors: Sequence[int] = (64, 128, 300, 480), draft: int = 16) -> Mask:
    """A diffusion drafter learns from many anchors at once: a draft sees its context and itself, in both directions.

    >>> draw(dflash_training(context=4, anchors=[1, 3], draft=2))
    # . . . # # . .
    # . . . # # . .
    # # # . . . # #
    # # # . . . # #
    """
    for n, anchor in enumerate(anchors):
        if anchor > context:
            raise ValueError(f"dflash_training: anchor {n} is {anchor}; it must be at most the context, {context}")
    queries = len(anchors) * draft
    before = regions.band(None, 0).take(q=np.repeat(anchors, draft)) & regions.prefix(context)
    own = documents([draft] * len(anchors)).at(q=(0, queries), k=(context, context + queries))
    return before.named("context") | own.named("drafts")


@register(
    title="JetSpec training",
    formula="j < n, or draft(i) = draft(j) and j − n ≤ i",
    source="JetSpec, arXiv:2606.18394; the mask: github.com/meta-pytorch/attention-gym",
    intervals=2,
    convention="Keys are the verified prefix, then the drafts; queries are the drafts alone, each [anchor, future, …].",
    parameters={
        "context": count("tokens", "length of the verified prefix", slider=8192),
        "drafts": count("", "drafts that are trained at once", least=1, slider=256),
        "draft": count("tokens", "tokens of a draft, its anchor among them", least=1, slider=64),
    },
)
def jetspec_training(context: int = 256, drafts: int = 16, draft: int = 8) -> Mask:
    """Drafts that are causal inside and see the whole prefix, but no other draft.

    >>> draw(jetspec_training(context=2, drafts=2, draft=3))
    # # # . . . . .
    # # # # . . . .
    # # # # # . . .
    # # . . . # . .
    # # . . . # # .
    # # . . . # # #
    """
    queries = drafts * draft
    own = regions.causal().repeat([draft] * drafts).at(q=(0, queries), k=(context, context + queries))
    prefix = regions.rect(q=(0, queries), k=(0, context))
    return prefix.named("prefix") | own.named("drafts") if context else own.named("drafts")


@register(
    title="Block diffusion",
    formula="noisy sees its own noisy block and the clean ones before it; clean sees clean blocks up to its own",
    source="BD3-LM, arXiv:2503.09573",
    intervals=2,
    convention="BD3-LM puts the noisy half first; others put the clean half first. Both are here.",
    parameters={
        "length": count("tokens", "length of the sequence; the mask has twice as many rows", least=1, slider=8192),
        "block": count("tokens", "tokens of a block", least=1, slider=256),
        "order": choice("which half comes first", "noisy first", "clean first"),
    },
)
def block_diffusion(length: int = 512, block: int = 32, order: str = "noisy first") -> Mask:
    """Training of a diffusion model that writes block by block: the noisy copy and the clean one in one sequence.

    >>> draw(block_diffusion(length=4, block=2))
    # # . . . . . .
    # # . . . . . .
    . . # # # # . .
    . . # # # # . .
    . . . . # # . .
    . . . . # # . .
    . . . . # # # #
    . . . . # # # #
    """
    halves = (0, length), (length, 2 * length)
    noisy, clean = halves if order == "noisy first" else halves[::-1]
    blocks = documents(pieces(length, block))
    earlier = (regions.causal() - blocks).at(q=noisy, k=clean).named("clean blocks before")
    own = blocks.at(q=noisy, k=noisy).named("own noisy block")
    up_to = (regions.causal() | blocks).at(q=clean, k=clean).named("clean")
    return own | earlier | up_to


@register(
    title="Multi-token prediction",
    formula="main: j ≤ i; token s of group a: j ≤ a, or the own group up to s",
    source="Your LLM Knows the Future, arXiv:2507.11851",
    intervals=2,
    convention="The groups stand behind the sequence, in the order of their positions; none sees another.",
    parameters={
        "length": count("tokens", "length of the sequence", least=1, slider=4096),
        "ahead": count("tokens", "mask tokens of every group", least=1, slider=16),
        "every": count("tokens", "positions from one group to the next", least=1, slider=64),
    },
)
def multi_token(length: int = 256, ahead: int = 4, every: int = 1) -> Mask:
    """After every position a few mask tokens predict what comes next; they see the text so far and themselves.

    >>> draw(multi_token(length=3, ahead=2, every=2))
    # . . . . . .
    # # . . . . .
    # # # . . . .
    # . . # . . .
    # . . # # . .
    # # # . . # .
    # # # . . # #
    """
    anchors = np.arange(0, length, every)
    extra = len(anchors) * ahead
    text, groups = (0, length), (length, length + extra)
    main = regions.causal().at(q=text, k=text).named("text")
    before = regions.causal().take(q=np.repeat(anchors, ahead)).at(q=groups, k=text).named("text so far")
    own = regions.causal().repeat([ahead] * len(anchors)).at(q=groups, k=groups).named("groups")
    return main | before | own


@register(
    title="Context-parallel shard",
    formula="j ≤ σ(i), σ the positions of the rank",
    source="Llama 3, arXiv:2407.21783 (zigzag); Striped Attention, arXiv:2311.09431",
    convention="Queries are the rank's tokens in its order, keys are all tokens in their natural order. With a window "
    "of W a query sees W keys, its own among them.",
    parameters={
        "length": count("tokens", "length of the whole sequence", least=1, slider=32768),
        "ranks": count("", "number of ranks", least=1, slider=64),
        "rank": count("", "which rank", slider=63),
        "layout": choice("how tokens are dealt out", "zigzag", "contiguous", "striped"),
        "window": count("keys", "keys in a sliding window; 0 for causal", slider=8192),
    },
)
def context_parallel(
    length: int = 1024, ranks: int = 4, rank: int = 0, layout: str = "zigzag", window: int = 0
) -> Mask:
    """What one rank computes when a causal sequence is dealt out to several: the same mask through other rows.

    >>> draw(context_parallel(length=8, ranks=2, rank=0, layout="zigzag"), 4, 8)
    # . . . . . . .
    # # . . . . . .
    # # # # # # # .
    # # # # # # # #
    """
    positions = shard_positions(length, ranks, rank, layout)
    base = regions.window(window - 1) if window else regions.causal()
    queries = len(positions)
    return _padded(base.take(q=positions), queries, length)


def shard_positions(length: int, ranks: int, rank: int, layout: str = "zigzag") -> np.ndarray:
    """The positions that a rank holds, in its order: int64 ``(n,)``. For any mask: ``mask.take(q=positions)``.

    Args:
        layout: "contiguous": one piece each. "striped": every ``ranks``-th token. "zigzag": of twice as many pieces
            the rank's own and its mirror image from the end, so that causal work is even.

    >>> [shard_positions(8, 2, rank, "zigzag").tolist() for rank in range(2)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    >>> [shard_positions(7, 2, rank, "striped").tolist() for rank in range(2)]
    [[0, 2, 4, 6], [1, 3, 5]]
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"context_parallel: rank is {rank}; it must lie between 0 and {ranks - 1}")
    every = np.arange(length)
    if layout == "striped":
        return every[rank::ranks]
    if layout == "contiguous":
        return np.array_split(every, ranks)[rank]
    parts = np.array_split(every, 2 * ranks)
    return np.concatenate([parts[rank], parts[2 * ranks - 1 - rank]])


def _padded(mask: Mask, q_len: int, kv_len: int) -> Mask:
    """The mask made for a plane of this size, though it may see nothing at its end."""
    return mask & regions.rect(q=(0, q_len), k=(0, kv_len))
