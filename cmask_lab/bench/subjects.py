"""The masks of the paper suite, at any length: what ``cmask bench --suite paper`` runs.

At 32,768 tokens they are the masks that this project has always been measured on; at other lengths their parts shrink
in proportion, so that density stays about the same. Random lengths come from a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

import cmask_lab as cm
from cmask_lab.masks.lengths import own_lengths
from cmask_lab.masks.regions import Causal, Full, SlidingWindow
from cmask_lab.short_text import shortened

if TYPE_CHECKING:
    import numpy as np
    import torch

    from cmask_lab.bench.predicates import MaskMod
    from cmask_lab.masks.mask import Mask

USUAL_LENGTH = 32768
"""Tokens of a benchmark that nobody gave a length for."""

TITLE_LIMIT = 60
"""Characters of a mask's code in place of a title."""

SHORTEST = 512
"""Tokens below which the suite's masks lose their shape."""


@dataclass(frozen=True)
class Subject:
    """A mask to be measured, with the predicate that FlexAttention gets for it.

    Attributes:
        name: short, for the command line.
        title: for a table.
        mask: made for ``seq_len`` queries and keys.
        predicate: ``(device, order)`` to FlexAttention's mask_mod; ``order`` is None or the permutation that the tokens
            are kept in. None: a predicate is made from the mask's intervals.
        native: how kernels without free masks can be asked for it: "causal", "full", ("window", left) or None.
        head_dim: 128 unless the suite wants another.
        contenders: the ones that make sense for this mask beside those asked for.
    """

    name: str
    title: str
    mask: Mask
    seq_len: int
    predicate: Callable[[torch.device, np.ndarray | None], MaskMod] | None = None
    native: str | tuple[str, int] | None = None
    head_dim: int = 128
    contenders: tuple[str, ...] = ()


def causal(seq_len: int, head_dim: int = 128) -> Subject:
    """Every query sees the keys up to its own position."""
    name = "causal" if head_dim == 128 else f"causal-d{head_dim}"
    title = "causal" if head_dim == 128 else f"causal, D={head_dim}"
    predicate = _fixed(lambda device: _predicates().causal())
    return Subject(name, title, cm.causal().named("causal"), seq_len, predicate, "causal", head_dim)


def full(seq_len: int) -> Subject:
    """Every query sees every key."""
    return Subject(
        "full", "full", cm.full().named("full"), seq_len, _fixed(lambda device: _predicates().full()), "full"
    )


def hstu(seq_len: int) -> Subject:
    """One HSTU user: contextual tokens, history, and targets that see history and themselves but not each other."""
    contextual, targets = max(seq_len // 512, 8), seq_len // 8
    mask = _hstu_mask(seq_len, contextual, targets).named(f"HSTU: {contextual} contextual, {targets} targets")
    predicate = _fixed(lambda device: _predicates().hstu(seq_len, contextual, targets))
    return Subject("hstu", "HSTU", mask, seq_len, predicate, contenders=("cmask+silu",))


def shared_prompt(seq_len: int) -> Subject:
    """Four groups, each a prompt of half its length and eight long answers that see it and themselves."""
    size = seq_len // 4
    answer = size // 16
    # What eight equal answers leave over goes to the last of them.
    groups = [[size - 8 * answer, *[answer] * 8] for _ in range(3)]
    rest = seq_len - 3 * size
    groups.append([size - 8 * answer, *[answer] * 7, rest - (size - 8 * answer) - 7 * answer])
    return _shared("shared-prompt", "shared prompt, long answers", seq_len, groups)


def reward(seq_len: int) -> Subject:
    """A reward model's batch: a prompt and 32 short answers to it, packed until the sequence is full."""
    prompt, answers = seq_len // 16, 32
    shortest, longest = max(seq_len // 1024, 2), max(5 * seq_len // 1024, 8)
    generator, groups, left = random.Random(0), [], seq_len
    while left:
        group = [min(prompt, left)]
        left -= group[0]
        for _ in range(answers):
            if not left:
                break
            group.append(min(generator.randint(shortest, longest), left))
            left -= group[-1]
        groups.append(group)
    return _shared("reward", "reward model, short answers", seq_len, groups)


def documents(seq_len: int) -> Subject:
    """Packed causal documents of random length, 128 to 1024 tokens at full size."""
    lengths = _lengths(seq_len, max(min(128, seq_len // 32), 8), min(1024, seq_len // 4))
    mask = (cm.documents(lengths) & cm.causal()).named("packed documents")
    predicate = _fixed(lambda device: _predicates().documents(lengths, device))
    return Subject("documents", f"documents of {min(lengths)}–{max(lengths)}", mask, seq_len, predicate)


def window(seq_len: int) -> Subject:
    """The last 1024 keys (fewer where the sequence is short)."""
    width = min(1024, seq_len // 4)
    mask = cm.window(width - 1).named(f"window of {width}")
    predicate = _fixed(lambda device: _predicates().window(width))
    return Subject("window", f"window {width}", mask, seq_len, predicate, ("window", width - 1))


def hstu_packed(seq_len: int) -> Subject:
    """Many HSTU users in one sequence: 256 to 2048 events each, 8 contextual tokens and 64 targets."""
    lengths = _lengths(seq_len, min(256, seq_len // 16), min(2048, seq_len // 4))
    contextual, targets = 8, min(64, seq_len // 64)
    users = [_hstu_mask(length, min(contextual, length), min(targets, length)) for length in lengths]
    mask = cm.repeat(lengths, users).named("HSTU, packed users")
    predicate = _fixed(lambda device: _predicates().hstu_packed(lengths, contextual, targets, device))
    return Subject("hstu-packed", "HSTU, packed users", mask, seq_len, predicate)


def clear(seq_len: int, radius: int) -> Subject:
    """CLEAR: text, then an image whose tokens see the text and a disk around themselves."""
    text, height, width = image_shape(seq_len)
    box = (text, seq_len)
    disk = cm.grid(height, width).disk(radius).at(q=box, k=box)
    mask = (cm.global_tokens([(0, text)]) | disk).named(f"CLEAR, r={radius}")

    def predicate(device: torch.device, order: np.ndarray | None) -> MaskMod:
        return _predicates().clear(text, height, width, radius, device, order)

    extra = ("cmask+order", "cmask+kept", "flex-fa4+kept")
    return Subject(f"clear-r{radius}", f"CLEAR r={radius}", mask, seq_len, predicate, contenders=extra)


def image_shape(seq_len: int) -> tuple[int, int, int]:
    """Text tokens, rows and columns of an image, filling the length; the image as square as its area allows.

    >>> image_shape(32768), image_shape(2048)
    ((512, 168, 192), (32, 42, 48))
    """
    text = seq_len // 64
    area = seq_len - text
    height = next(side for side in range(isqrt(area), 0, -1) if area % side == 0)
    if 4 * height < area // height:  # a strip is no image: leave a few tokens more to the text
        height = isqrt(area)
        text = seq_len - height * (area // height)
    return text, height, (seq_len - text) // height


PAPER: dict[str, Callable[[int], Subject]] = {
    "causal": causal,
    "hstu": hstu,
    "reward": reward,
    "clear-r16": lambda seq_len: clear(seq_len, 16),
    "shared-prompt": shared_prompt,
    "documents": documents,
    "window": window,
    "hstu-packed": hstu_packed,
    "clear-r8": lambda seq_len: clear(seq_len, 8),
    "full": full,
    "causal-d64": lambda seq_len: causal(seq_len, head_dim=64),
}
"""The suite, in the order in which it is run: the paper's four masks first, in case time runs out."""

ANY_LENGTH = ("causal", "causal-d64", "full")
"""Those of the suite that have no parts that shrink with the length."""

FOUR = ("causal", "hstu", "reward", "clear-r16")
"""The paper's four masks."""

SUITES = {"paper": tuple(PAPER), "four": FOUR}


def subjects(suite: str, seq_len: int) -> list[Subject]:
    """The masks of a suite at a length, in the order in which they are run.

    >>> [subject.name for subject in subjects("four", 1024)]
    ['causal', 'hstu', 'reward', 'clear-r16']
    """
    if suite not in SUITES:
        raise ValueError(f"suite: {suite!r} is not one of {', '.join(map(repr, SUITES))}")
    return [subject(name, seq_len) for name in SUITES[suite]]


def subject(name: str, seq_len: int) -> Subject:
    """One mask of the paper suite at a length."""
    if name not in PAPER:
        raise ValueError(f"mask: {name!r} is not one of {', '.join(map(repr, PAPER))}")
    if seq_len < SHORTEST and name not in ANY_LENGTH:
        raise ValueError(f"seq_len: {seq_len} is too short for the suite's {name!r}; give at least {SHORTEST}")
    return PAPER[name](seq_len)


def plain(mask: Mask, seq_len: int | None = None) -> Subject:
    """A mask from anywhere; what kernels without free masks can do with it is read off its description.

    It is measured at the length that it was made for, or at 32,768 tokens if it was made for none and ``seq_len`` is
    not given.

    >>> plain(cm.window(63), 1024).native
    ('window', 63)
    """
    native: str | tuple[str, int] | None = mask.type if isinstance(mask, Causal | Full) else None
    if isinstance(mask, SlidingWindow) and mask.right == 0 and mask.left is not None:
        native = ("window", mask.left)
    if seq_len is None:
        seq_len = max(own_lengths(mask) or (USUAL_LENGTH,))
    name, title = mask.name or mask.type, mask.name or shortened(repr(mask), TITLE_LIMIT)
    return Subject(name, title, mask, seq_len, None, native)


def _shared(name: str, title: str, seq_len: int, groups: list[list[int]]) -> Subject:
    sizes = [sum(group) for group in groups]
    masks = [cm.causal() & (cm.prefix(group[0]) | cm.documents(group)) for group in groups]
    mask = cm.repeat(sizes, masks).named(title)
    return Subject(name, title, mask, seq_len, _fixed(lambda device: _predicates().shared_prompts(groups, device)))


def _hstu_mask(length: int, contextual: int, targets: int) -> Mask:
    history = length - targets
    mask = (cm.causal() & cm.prefix(history)) | cm.window(0)
    if contextual and history:
        mask = mask | cm.rect(q=(0, contextual), k=(0, history))
    return mask


def _lengths(total: int, shortest: int, longest: int) -> list[int]:
    """Random lengths that fill a sequence; the last one is cut off where it ends."""
    generator, lengths = random.Random(0), []
    while total:
        lengths.append(min(generator.randint(shortest, longest), total))
        total -= lengths[-1]
    return lengths


def _fixed(make: Callable[[torch.device], MaskMod]) -> Callable[[torch.device, np.ndarray | None], MaskMod]:
    """A predicate for tokens in their natural order alone."""

    def predicate(device: torch.device, order: np.ndarray | None) -> MaskMod:
        if order is not None:
            raise NotImplementedError("no predicate is written for this mask in another token order")
        return make(device)

    return predicate


def _predicates():
    """The predicates' module, which needs PyTorch; the masks alone don't."""
    from cmask_lab.bench import predicates

    return predicates
