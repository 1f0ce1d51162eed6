"""Several sequences in one: documents, demonstrations, prompts that several answers share."""

from __future__ import annotations

from collections.abc import Sequence

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    lists,
    register,
)
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import repeat
from cmask_lab.masks.tables import documents

FLASHMASK = "FlashMask, arXiv:2410.01359"


@register(
    title="Packed documents",
    formula="doc(i) = doc(j)",
    source="Sequence packing without cross-contamination, arXiv:2107.02027",
    parameters={"lengths": ints("tokens", "length of every document")},
)
def documents_full(lengths: Sequence[int] = (256, 512, 128, 128)) -> Mask:
    """Every document sees itself in both directions and no other.

    >>> draw(documents_full(lengths=[2, 1, 3]))
    # # . . . .
    # # . . . .
    . . # . . .
    . . . # # #
    . . . # # #
    . . . # # #
    """
    return documents(lengths)


@register(
    title="Packed causal documents",
    formula="doc(i) = doc(j) and j ≤ i",
    source="Sequence packing without cross-contamination, arXiv:2107.02027",
    parameters={"lengths": ints("tokens", "length of every document")},
)
def documents_causal(lengths: Sequence[int] = (256, 512, 128, 128)) -> Mask:
    """Every document is causal and sees no other: a packed batch of a language model.

    >>> draw(documents_causal(lengths=[2, 1, 3]))
    # . . . . .
    # # . . . .
    . . # . . .
    . . . # . .
    . . . # # .
    . . . # # #
    """
    return documents(lengths) & regions.causal()


@register(
    title="Packed prefix-LM documents",
    formula="doc(i) = doc(j) and (j < start(doc) + P(doc) or j ≤ i)",
    source=FLASHMASK,
    parameters={"parts": lists("tokens", "for every document its prefix and its length")},
)
def documents_prefix(parts: Sequence[Sequence[int]] = ((64, 256), (128, 512), (32, 256))) -> Mask:
    """Every document has a prefix of its own that it sees in both directions.

    >>> draw(documents_prefix(parts=[[2, 3], [1, 3]]))
    # # . . . .
    # # . . . .
    # # # . . .
    . . . # . .
    . . . # # .
    . . . # # #
    """
    for n, part in enumerate(parts):
        if len(part) != 2 or part[0] > part[1]:
            raise ValueError(
                f"documents_prefix: document {n} is {part}; give [prefix, length] with the prefix at most the length"
            )
    sizes = [length for _, length in parts]
    return repeat(sizes, [regions.prefix(length) | regions.causal() for length, _ in parts])


@register(
    title="Causal documents, the last sees all",
    formula="j ≤ i and (doc(i) = doc(j) or doc(i) is the last)",
    source=FLASHMASK,
    parameters={"lengths": ints("tokens", "length of every document; the last one sees the others")},
)
def causal_blockwise(lengths: Sequence[int] = (256, 256, 256, 256)) -> Mask:
    """Demonstrations that don't see one another, then a test example that sees them all: in-context learning.

    >>> draw(causal_blockwise(lengths=[2, 2, 2]))
    # . . . . .
    # # . . . .
    . . # . . .
    . . # # . .
    # # # # # .
    # # # # # #
    """
    total = sum(lengths)
    last = regions.rect(q=(total - lengths[-1], total), k=(0, total)).named("last document")
    return regions.causal() & (documents(lengths) | last)


@register(
    title="Shared prompt",
    formula="j ≤ i and (j < P or answer(i) = answer(j))",
    source="Prefix sharing for DPO, arXiv:2410.20305",
    intervals=2,
    parameters={
        "prompt": count("tokens", "length of the prompt", slider=16384),
        "answers": ints("tokens", "length of every answer"),
    },
)
def shared_prompt(prompt: int = 512, answers: Sequence[int] = (128, 128, 128, 128)) -> Mask:
    """One prompt, computed once, and several answers to it that don't see one another: DPO, reward models, GRPO.

    >>> draw(shared_prompt(prompt=2, answers=[2, 2]))
    # . . . . .
    # # . . . .
    # # # . . .
    # # # # . .
    # # . . # .
    # # . . # #
    """
    return _shared(prompt, answers)


@register(
    title="Packed shared prompts",
    formula="j ≤ i, same group, and (j in the prompt or answer(i) = answer(j))",
    source=FLASHMASK,
    intervals=2,
    parameters={"groups": lists("tokens", "for every group its prompt and its answers")},
)
def shared_prompts(groups: Sequence[Sequence[int]] = ((256, 64, 64), (512, 64, 64))) -> Mask:
    """Several groups of a prompt and its answers, packed one after another.

    >>> draw(shared_prompts(groups=[[1, 1, 1], [2, 1]]))
    # . . . . .
    # # . . . .
    # . # . . .
    . . . # . .
    . . . # # .
    . . . # # #
    """
    return repeat([sum(group) for group in groups], [_shared(group[0], group[1:]) for group in groups])


def _shared(prompt: int, answers: Sequence[int]) -> Mask:
    return regions.causal() & (regions.prefix(prompt).named("prompt") | documents([prompt, *answers]).named("answers"))
