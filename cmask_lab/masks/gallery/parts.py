"""What several families are built with."""

from __future__ import annotations

from collections.abc import Sequence


def pieces(length: int, size: int) -> list[int]:
    """Equal sizes that fill a length; the last one is what remains.

    >>> pieces(7, 3)
    [3, 3, 1]
    """
    return [min(size, length - start) for start in range(0, length, size)]


def spread(values: Sequence[int], axes: int) -> list[int]:
    """One number for each axis, from one for all or one each.

    >>> spread([3], 2)
    [3, 3]
    """
    return list(values) * axes if len(values) == 1 else list(values)


def check_axes(entry: str, axes: int, **settings: Sequence[int]) -> None:
    """Every setting has one number an axis, or an error says which hasn't."""
    for what, values in settings.items():
        if len(values) != axes:
            raise ValueError(f"{entry}: {what} is {list(values)}; give {axes} numbers, one for each axis")
