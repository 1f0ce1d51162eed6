"""What "window W" means elsewhere: how many keys a causal window of that number shows, by library.

===================  =====================  ==========================================================
library              keys of a full window  where it says so
===================  =====================  ==========================================================
``huggingface``      W                      ``transformers``, ``masking_utils.py``: ``k > q - W``
``flashmask``        W                      its mask generators: rows from ``j + W`` on are hidden
``xformers``         W                      ``attn_bias``, ``window_size`` of the causal classes
``flexattention``    W + 1                  PyTorch's examples: ``q - k <= W``
``flashattention``   W + 1                  ``window_size=(W, 0)``
``jax``              W + 1                  ``dot_product_attention``, ``local_window_size``
``hstu``             W + 1                  Meta's ``generative-recommenders``: ``q - k <= W``
===================  =====================  ==========================================================

Ours is ``cm.window(left)``: ``left`` keys before the query, and its own. NATTEN's ``kernel_size=K`` is no window in
this sense: it always shows K keys, shifted at the border (``cm.grid(…).neighborhood``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WindowCount:
    """How a library counts.

    Attributes:
        counts_itself: whether its number counts the query's own key.
        how: what its number shows, in its own words.
    """

    counts_itself: bool
    how: str

    def left(self, size: int) -> int:
        """``cm.window``'s number for the library's.

        >>> WINDOW_COUNTS["huggingface"].left(4096), WINDOW_COUNTS["jax"].left(4096)
        (4095, 4096)
        """
        return size - self.counts_itself

    def size(self, left: int) -> int:
        """The library's number for ``cm.window``'s."""
        return left + self.counts_itself


WINDOW_COUNTS = {
    "huggingface": WindowCount(True, "sliding_window=W shows W keys"),
    "flashmask": WindowCount(True, "its generator's window of W shows W keys"),
    "xformers": WindowCount(True, "window_size=W shows W keys"),
    "flexattention": WindowCount(False, "its examples' q − kv <= W shows W + 1 keys"),
    "flashattention": WindowCount(False, "window_size=(W, 0) shows W + 1 keys"),
    "jax": WindowCount(False, "local_window_size=(W, 0) shows W + 1 keys"),
    "hstu": WindowCount(False, "Meta's max_attn_len=W shows W + 1 keys"),
}

NATTEN = "natten"
"""The linter compares with it, too, though not by count."""
