"""Images in text: seen in both directions, as a prefix, or by cross-attention."""

from __future__ import annotations

from collections.abc import Sequence

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    pairs,
    register,
)
from cmask_lab.masks.mask import Mask


@register(
    title="Images in causal text",
    formula="j ≤ i or i and j in the same image",
    source="Gemma 3, arXiv:2503.19786",
    parameters={"images": pairs("tokens", "where each image starts and stops")},
)
def image_in_text(images: Sequence[tuple[int, int]] = ((64, 320), (512, 768))) -> Mask:
    """Causal text; the tokens of an image see one another in both directions.

    >>> draw(image_in_text(images=[(1, 4)]), 6, 6)
    # . . . . .
    # # # # . .
    # # # # . .
    # # # # . .
    # # # # # .
    # # # # # #
    """
    result = regions.causal()
    for start, stop in images:
        result = result | regions.rect(q=(start, stop), k=(start, stop)).named("image")
    return result


@register(
    title="Image and prompt, then causal",
    formula="j < M + P or j ≤ i",
    source="PaliGemma, arXiv:2407.07726",
    parameters={
        "image": count("tokens", "tokens of the image, first in the sequence", slider=4096),
        "prompt": count("tokens", "tokens of the prompt", slider=1024),
    },
)
def image_prefix(image: int = 256, prompt: int = 64) -> Mask:
    """Image and prompt see one another in both directions; what the model writes is causal.

    >>> draw(image_prefix(image=2, prompt=1), 5, 5)
    # # # . .
    # # # . .
    # # # . .
    # # # # .
    # # # # #
    """
    return regions.prefix(image + prompt).named("image and prompt") | regions.causal()


@register(
    title="Flamingo cross-attention",
    formula="j in the last image whose place in the text is at most i",
    source="Flamingo, arXiv:2204.14198",
    convention="Text before the first image sees nothing: its output is 0.",
    parameters={
        "text": count("tokens", "length of the text: the queries", least=1, slider=4096),
        "places": ints("tokens", "where in the text each image stands, ascending"),
        "image": count("keys", "keys of every image", least=1, slider=1024),
    },
)
def flamingo(text: int = 512, places: Sequence[int] = (16, 200, 380), image: int = 64) -> Mask:
    """Text tokens look at the image that they follow. Queries are text, keys are images: not square.

    >>> draw(flamingo(text=5, places=[1, 3], image=2))
    . . . .
    # # . .
    # # . .
    . . # #
    . . # #
    """
    stops = [*places[1:], text]
    for n, (start, stop) in enumerate(zip(places, stops, strict=True)):
        if start > stop:
            raise ValueError(f"flamingo: place {n} is {start}, behind {stop}; places ascend and lie inside the text")
    result: Mask | None = None
    for n, (start, stop) in enumerate(zip(places, stops, strict=True)):
        seen = regions.rect(q=(start, stop), k=(n * image, (n + 1) * image)).named(f"image {n}")
        result = seen if result is None else result | seen
    assert result is not None  # a list of integers is never empty
    return result
