"""Checks of what a caller hands to a region: each answers with a clean value or with an error that says what to do.

A message has three parts: where (``documents: length 1``), what was given (``is -3``) and what is needed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeGuard

import numpy as np

from cmask_lab.compiler.intervals import POSITION_LIMIT, Int64s


def integer(value: Any, what: str, *, least: int = 0, most: int = POSITION_LIMIT) -> int:
    """``value`` as a Python int in ``[least, most]``; bools and floats are refused.

    >>> integer(3, "prefix: n")
    3
    >>> integer(-1, "prefix: n")
    Traceback (most recent call last):
    ValueError: prefix: n is -1; it must be at least 0
    """
    number = _as_int(value)
    if number is None:
        raise TypeError(f"{what} is {value!r}; it must be an integer")
    if number < least:
        raise ValueError(f"{what} is {number}; it must be at least {least}")
    if number > most:
        raise ValueError(f"{what} is {number}; it must be at most {most}")
    return number


def optional_integer(value: Any, what: str, *, least: int = 0) -> int | None:
    """Like ``integer``, and None stays None."""
    return None if value is None else integer(value, what, least=least)


def listed(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether ``value`` has items to go through, and is no text; an array without axes says so only when asked.

    >>> listed([1, 2]), listed("12"), listed(np.array(3))
    (True, False, False)
    """
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0


def pair(value: Any, what: str) -> tuple[int, int]:
    """A half-open range ``(start, stop)`` with ``0 <= start <= stop``.

    >>> pair((5, 2), "rect: q")
    Traceback (most recent call last):
    ValueError: rect: q is (5, 2); a range [start, stop) needs start <= stop
    """
    parts = tuple(value) if listed(value) else ()
    if len(parts) != 2:
        raise TypeError(f"{what} is {value!r}; it must be a pair (start, stop)")
    start, stop = integer(parts[0], f"{what} start"), integer(parts[1], f"{what} stop")
    if start > stop:
        raise ValueError(f"{what} is ({start}, {stop}); a range [start, stop) needs start <= stop")
    return start, stop


def integers(
    values: Any, where: str, item: str, *, least: int = 0, need: str = "", may_be_empty: bool = False
) -> Int64s:
    """A read-only int64 array ``(n,)``, from a list, a NumPy array or a tensor.

    Args:
        where, item: name of the region and of one value, for the messages.
        least: the smallest value allowed.
        need: what the message of a value below ``least`` asks for.
        may_be_empty: whether no value at all is fine.

    >>> integers([512, -3], "documents", "length", need="every document needs a length of at least 0")
    Traceback (most recent call last):
    ValueError: documents: length 1 is -3; every document needs a length of at least 0
    """
    if hasattr(values, "__array__"):
        try:
            array = np.asarray(values)
        except (TypeError, RuntimeError) as error:
            raise TypeError(f"{where}: the {item}s can't be read ({error}); pass them from the CPU") from error
        if array.ndim != 1:
            raise TypeError(f"{where}: the {item}s must be one-dimensional, got shape {array.shape}")
        if array.dtype.kind not in "iu":
            raise TypeError(f"{where}: the {item}s must be integers, got an array of {array.dtype}")
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | Set):
        numbers = list(values)
        for index, value in enumerate(numbers):
            if type(value) is not int:
                numbers[index] = _as_int(value)
                if numbers[index] is None:
                    raise TypeError(f"{where}: {item} {index} is {value!r}; every {item} must be an integer")
        array = np.array(numbers, dtype=None if numbers else np.int64)
    else:
        raise TypeError(f"{where}: expected a list of integers, one {item} each, got {values!r}")
    if not array.size and not may_be_empty:
        raise ValueError(f"{where}: the list of {item}s is empty; give at least one")
    _refuse(array > POSITION_LIMIT, array, where, item, f"it must be at most {POSITION_LIMIT}")
    _refuse(array < least, array, where, item, need or f"every {item} must be at least {least}")
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def _refuse(bad: Any, array: Any, where: str, item: str, need: str) -> None:
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{where}: {item} {index} is {array[index]}; {need}")


def _as_int(value: Any) -> int | None:
    """The integer that ``value`` is, or None for anything else; a bool is not an integer here."""
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
