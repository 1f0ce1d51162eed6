"""Windows as other libraries count them."""

from __future__ import annotations

from cmask_lab.masks import window
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.regions import SlidingWindow
from cmask_lab.masks.window_counts import WINDOW_COUNTS


def from_window(library: str, size: int) -> SlidingWindow:
    """The causal window that a library means by ``size``; :mod:`cmask_lab.masks.window_counts` says how each counts.

    Args:
        library: "huggingface", "flashmask", "xformers", "flexattention", "flashattention", "jax" or "hstu". NATTEN
            shifts its window at the border: that is ``cm.grid(…).neighborhood(size)``.
        size: the library's number.

    Raises:
        ValueError: a library that is not known, or a size that it does not allow.

    >>> from_window("huggingface", 4096), from_window("flashattention", 4096)
    (cm.window(4095, 0), cm.window(4096, 0))
    """
    if library not in WINDOW_COUNTS:
        raise ValueError(f"from_window: library {library!r} is unknown; known are {', '.join(WINDOW_COUNTS)}")
    count = WINDOW_COUNTS[library]
    return window(count.left(integer(size, f"from_window: the size for {library}", least=int(count.counts_itself))))
