"""Masks of generative recommenders: HSTU, one user or many users packed."""

from __future__ import annotations

from collections.abc import Sequence

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    register,
)
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import repeat

HSTU = "HSTU, arXiv:2402.17152 and github.com/meta-recsys/generative-recommenders"
WINDOW = (
    "A window of W counts what lies before the query (Meta): history sees W + 1 keys, itself among them, and targets "
    "the last W of the history and themselves. The contextual tokens all stand at position 0 for the window."
)

SHARED = {
    "window": count("keys", "history keys before the query that it sees; 0 for all", slider=4096),
    "full_tail": count("tokens", "last history tokens that see everything in spite of the window", slider=4096),
    "target_group_size": count("tokens", "targets of a group that see one another causally", least=1, slider=64),
}


@register(
    title="HSTU",
    formula="contextual: j < H; history: lo(i) ≤ j ≤ i; targets: lo(i) ≤ j < H or j = i; with H = n − t",
    source=HSTU,
    intervals=2,
    convention=WINDOW,
    parameters={
        "length": count("tokens", "contextual, history and target tokens together", least=1, slider=32768),
        "contextual": count("tokens", "first tokens, which see the whole history", slider=256),
        "targets": count("tokens", "last tokens, candidates that don't see one another", slider=4096),
        **SHARED,
    },
)
def hstu(
    length: int = 1024,
    contextual: int = 16,
    targets: int = 128,
    window: int = 0,
    full_tail: int = 0,
    target_group_size: int = 1,
) -> Mask:
    """One user: contextual features, a causal history, and candidates that are scored side by side.

    The history ends at ``H = length - targets``. Contextual tokens see ``[0, H)``. With a window, a history token
    sees the ``window`` tokens before it, and the last ``full_tail`` history tokens and the targets see everything. A
    group of targets (NVIDIA's ``target_group_size``) is causal inside.

    >>> draw(hstu(length=8, contextual=2, targets=3))
    # # # # # . . .
    # # # # # . . .
    # # # . . . . .
    # # # # . . . .
    # # # # # . . .
    # # # # # # . .
    # # # # # . # .
    # # # # # . . #
    """
    return _user(length, contextual, targets, window, full_tail, target_group_size)


@register(
    title="HSTU, packed users",
    formula="same user and HSTU of the user",
    source=HSTU,
    intervals=2,
    convention=WINDOW,
    parameters={
        "lengths": ints("tokens", "tokens of every user"),
        "contextual": count("tokens", "contextual tokens of every user", slider=256),
        "targets": ints("tokens", "targets of every user, or one number for all"),
        **SHARED,
    },
)
def hstu_packed(
    lengths: Sequence[int] = (512, 256, 256),
    contextual: int = 8,
    targets: Sequence[int] = (64,),
    window: int = 0,
    full_tail: int = 0,
    target_group_size: int = 1,
) -> Mask:
    """Many users in one sequence; none sees another.

    >>> draw(hstu_packed(lengths=[4, 3], contextual=1, targets=[1]))
    # # # . . . .
    # # . . . . .
    # # # . . . .
    # # # # . . .
    . . . . # # .
    . . . . # # .
    . . . . # # #
    """
    each = list(targets) * len(lengths) if len(targets) == 1 else list(targets)
    if len(each) != len(lengths):
        raise ValueError(
            f"hstu_packed: {len(lengths)} lengths and {len(each)} targets; give one a user, or one for all"
        )
    users = {
        user: _user(*user, window, full_tail, target_group_size)
        for user in {(length, contextual, target) for length, target in zip(lengths, each, strict=True)}
    }
    masks = [users[length, contextual, target] for length, target in zip(lengths, each, strict=True)]
    return repeat(lengths, masks[0] if len(users) == 1 else masks)


def _user(length: int, contextual: int, targets: int, window: int, full_tail: int, group: int) -> Mask:
    """The mask of one user, out of regions that each mean something; empty ones are left out."""
    if contextual > length or targets > length:
        raise ValueError(
            f"hstu: {contextual} contextual tokens and {targets} targets in a sequence of {length}; "
            f"each must be at most the length"
        )
    history = length - targets
    past = regions.causal() & regions.prefix(history)
    parts = [(past if not window else past & regions.window(window)).named("history")]
    if contextual and history:
        parts.append(regions.rect(q=(0, contextual), k=(0, history)).named("contextual"))
    if window and contextual < history:
        # Contextual tokens share one position: the first `window` history tokens still reach them all.
        reached = regions.rect(q=(contextual, min(contextual + window, history)), k=(0, contextual))
        tail = past & regions.rect(q=(max(history - full_tail, contextual), history), k=(0, history))
        parts += [reached.named("contextual in reach")] if contextual else []
        parts += [tail.named("full tail")] if full_tail else []
    if targets and history:
        # All targets stand at the first position behind the history.
        position = history - max(contextual - 1, 0)
        first = history - window if window and not full_tail and position > window else 0
        parts.append(regions.rect(q=(history, length), k=(first, history)).named("targets"))
    if group > 1 and targets:
        sizes = [min(group, targets - start) for start in range(0, targets, group)]
        box = (history, length)
        parts.append(regions.causal().repeat(sizes).at(q=box, k=box).named("target groups"))
    itself = regions.window(0) & regions.rect(q=(0, length), k=(0, length))
    result: Mask = itself.named("itself")
    for part in parts:
        result = result | part
    return result
