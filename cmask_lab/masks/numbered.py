"""Masks have numbers, so that one can pass where only tensors and numbers can: through an operator and a traced graph.

A number is given where the object is made. A tracer that reads it so reads an attribute, which may change from call to
call without a new trace; a number that a table hands out on request would be a constant of the graph.
"""

from __future__ import annotations

import itertools
from typing import Any, Self
from weakref import WeakValueDictionary

_FIRST = 2**40
"""Above the sizes of tensors, so that no tracer takes a number for one of them."""

_next = itertools.count(_FIRST)
_alive: WeakValueDictionary[int, Numbered] = WeakValueDictionary()


class Numbered:
    """An object with a number of its own for as long as it lives, in this process; a copy gets another one.

    >>> import cmask_lab as cm
    >>> mask = cm.causal()
    >>> numbered(mask.number) is mask, cm.causal().number == mask.number
    (True, False)
    """

    number: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """An object of the class with the next number."""
        self = super().__new__(cls)
        number = next(_next)
        self.__dict__["number"] = number  # the classes are frozen
        _alive[number] = self
        return self


def numbered(number: int) -> Numbered | None:
    """The object with this number; None if it is gone."""
    return _alive.get(number)
