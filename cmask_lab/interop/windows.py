"""What "window W" means elsewhere: how many keys a causal window of that number shows, by library.

===================  =====================  ==========================================================
library              keys of a full window  where it says so
===================  =====================  ==========================================================
``huggingface``      W                      ``transformers``, ``masking_utils.py``: ``k > q - W``
``flashmask``        W                      its mask generators: rows from ``j + W`` on are hidden
``xformers``         W                      ``attn_bias``, ``window_size`` of the causal classes
``flexattention``    W + 1                  PyTorch's examples: ``q - k <= W``
``flash_attention``  W + 1                  ``window_size=(W, 0)``
``jax``              W + 1                  ``dot_product_attention``, ``local_window_size``
``hstu``             W + 1                  Meta's ``generative-recommenders``: ``q - k <= W``
===================  =====================  ==========================================================

Ours is ``cm.window(left)``: ``left`` keys before the query, and its own.
"""

from __future__ import annotations

from cmask_lab.masks import window
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.regions import SlidingWindow

COUNTS_ITSELF = {
    "huggingface": True,
    "flashmask": True,
    "xformers": True,
    "flexattention": False,
    "flash_attention": False,
    "jax": False,
    "hstu": False,
}
"""Whether a library's number counts the query's own key."""


def from_window(library: str, size: int) -> SlidingWindow:
    """The causal window that a library means by ``size``.

    Raises:
        ValueError: a library that is not known, or a size that it does not allow.

    >>> from_window("huggingface", 4096), from_window("flash_attention", 4096)
    (cm.window(4095, 0), cm.window(4096, 0))
    """
    if library not in COUNTS_ITSELF:
        raise ValueError(f"from_window: library {library!r} is unknown; known are {', '.join(COUNTS_ITSELF)}")
    counts = COUNTS_ITSELF[library]
    return window(integer(size, f"from_window: the size for {library}", least=int(counts)) - counts)


def window_for(library: str, mask: SlidingWindow) -> int:
    """The number that a library takes for a causal window of ours.

    >>> import cmask_lab as cm
    >>> window_for("huggingface", cm.window(4095))
    4096
    """
    if library not in COUNTS_ITSELF:
        raise ValueError(f"window_for: library {library!r} is unknown; known are {', '.join(COUNTS_ITSELF)}")
    if not isinstance(mask, SlidingWindow) or mask.right != 0 or mask.left is None:
        raise ValueError(f"window_for: {mask!r} is not a causal window with an end, such as cm.window(1023)")
    return mask.left + COUNTS_ITSELF[library]
