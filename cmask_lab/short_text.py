"""Text cut to a length that a message or a title has room for."""

from __future__ import annotations

from typing import Any


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters, the last one an ellipsis where something is missing.

    >>> shortened("causal", 6), shortened("anticausal", 6)
    ('causal', 'antic…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown(value: Any) -> str:
    """A value as an error message shows it: its ``repr``, shortened.

    >>> shown("a" * 100)[-3:]
    'aa…'
    """
    try:
        return shortened(repr(value), 80)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a list in itself
        return f"a {type(value).__name__} that can't be shown ({error})"
