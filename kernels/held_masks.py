"""How a mask passes through an operator that takes only tensors and numbers: as a number that stands for it.

The alternatives were weighed. The descriptor's arrays as operator arguments would fix a device and a length when a
graph is traced, and the backward pass would need the transposed ones before anybody asks for a gradient. A script
object would tie the masks, which need NumPy alone, to PyTorch. A number costs nothing, and the graph stays valid for
all lengths and devices.

A number is good while the mask it stands for is: whoever holds the mask (a module, a variable, the autograd graph of an
eager call, the guard of a compiled graph) keeps its number working. Masks that nobody holds are let go, so a training
loop that makes a new mask for every batch does not fill the memory; the last ones stay for a while, since the backward
pass of a compiled graph may come after the caller has dropped the mask, and since the next batch may bring an equal
mask.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from weakref import WeakValueDictionary

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.compile import compile as compile_mask
from cmask_lab.masks.mask import Mask

RECENT_MASKS = 32
"""So many masks stay alive, with what was compiled from them, after nobody else holds them."""

LENGTHS_OF_A_MASK = 16
"""So many pairs of lengths stay compiled for each mask."""

ATTRIBUTE = "_held_by_attention"
"""Where a mask object carries its :class:`HeldMask`."""


class HeldMask:
    """A mask with its number and the results of compiling it.

    All masks of one meaning share one, so it holds the first of them itself: any of the others may outlive that one.
    """

    def __init__(self, number: int, source: Mask | CompiledMask):
        self.number = number
        self.source = source
        self._compiled: OrderedDict[tuple[int, int], CompiledMask] = OrderedDict()
        self._lock = threading.Lock()

    def compiled(self, q_len: int, kv_len: int) -> CompiledMask:
        """The mask, compiled for these lengths.

        Raises:
            ValueError: a compiled mask for other lengths was given, or the mask does not fit the lengths.
        """
        source = self.source
        if isinstance(source, CompiledMask):
            if (source.q_len, source.kv_len) != (q_len, kv_len):
                raise ValueError(
                    f"attention: the mask was compiled for q_len={source.q_len}, kv_len={source.kv_len}, but q and k "
                    f"have {q_len} and {kv_len} positions; compile it for those: cm.compile(mask, {q_len}, {kv_len})"
                )
            return source
        with self._lock:
            compiled = self._compiled.get((q_len, kv_len))
            if compiled is None:
                compiled = compile_mask(source, q_len, kv_len)
                self._compiled[q_len, kv_len] = compiled
                if len(self._compiled) > LENGTHS_OF_A_MASK:
                    self._compiled.popitem(last=False)
            else:
                self._compiled.move_to_end((q_len, kv_len))
        return compiled


_lock = threading.Lock()
_numbers = itertools.count(1)
_by_number: WeakValueDictionary[int, HeldMask] = WeakValueDictionary()
_recent: OrderedDict[Mask | CompiledMask, HeldMask] = OrderedDict()
"""By meaning for a Mask, by identity for a CompiledMask; holds both the mask and its HeldMask."""


def hold(source: Mask | CompiledMask) -> int:
    """The number of a mask; the same for the same object, and for an equal mask that is still around.

    What is known of a mask hangs on the object itself: a compiled mask refers to its mask, so a table of them beside it
    would keep every mask alive for ever.

    >>> import cmask_lab as cm
    >>> hold(cm.causal()) == hold(cm.causal())
    True
    """
    with _lock:
        held = vars(source).get(ATTRIBUTE)
        if held is None:
            held = _recent.get(source) or HeldMask(next(_numbers), source)
            _by_number[held.number] = held
            object.__setattr__(source, ATTRIBUTE, held)
        if next(reversed(_recent), None) is not source:
            _recent.pop(source, None)
            _recent[source] = held
            if len(_recent) > RECENT_MASKS:
                _recent.popitem(last=False)
        return held.number


def held(number: int) -> HeldMask:
    """What a number stands for.

    Raises:
        RuntimeError: the mask is gone.
    """
    found = _by_number.get(number)
    if found is None:
        raise RuntimeError(
            f"attention: mask number {number} no longer exists; keep a reference to the mask for as long as the "
            f"graph that uses it, and don't save the number"
        )
    return found
