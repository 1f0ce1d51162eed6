"""How a mask passes through an operator that takes only tensors and numbers: as its number.

The alternatives were weighed. The descriptor's arrays as operator arguments would fix a device and a length when a
graph is traced, and the backward pass would need the transposed ones before anybody asks for a gradient. A script
object would tie the masks, which need NumPy alone, to PyTorch. A number costs nothing, and the graph stays valid for
all masks, lengths and devices.

A number is good while the mask it stands for is: whoever holds the mask (a module, a variable, the autograd graph of an
eager call) keeps its number working. Masks that nobody holds are let go, so a training loop that makes a new mask for
every batch does not fill the memory; the last ones stay for a while, since the backward pass of a compiled graph may
come after the caller has dropped the mask, and since the next batch may bring an equal mask.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from weakref import WeakValueDictionary

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.compile import compile as compile_mask
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.numbered import numbered

RECENT_MASKS = 32
"""So many masks stay alive, with what was compiled from them, after nobody else holds them."""

LENGTHS_OF_A_MASK = 16
"""So many pairs of lengths stay compiled for each mask."""

ATTRIBUTE = "_held_by_attention"
"""Where a mask object carries its :class:`HeldMask`."""


class HeldMask:
    """A mask with the results of compiling it.

    All masks of one meaning share one, and any of them may outlive the others, so it has a copy of its own. Were it the
    mask on which it hangs, the two would hold each other, and none would be let go before Python's collector looks for
    such rings: it does so by the count of objects, however many bytes they have.
    """

    def __init__(self, source: Mask | CompiledMask):
        self.source = copy.copy(source) if isinstance(source, Mask) else source
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
_held: WeakValueDictionary[int, HeldMask] = WeakValueDictionary()
"""By hash: of the meaning for a Mask, of the object for a CompiledMask. A mask as key would never be let go."""
_recent: OrderedDict[int, Mask | CompiledMask] = OrderedDict()
"""By number, the last used at the end."""


def held(number: int) -> HeldMask:
    """What the mask with this number holds; the same for an equal mask that is still around.

    It hangs on the mask object itself: a compiled mask refers to its mask, so a table of them beside it would keep
    every mask alive for ever.

    Raises:
        RuntimeError: the mask is gone.

    >>> import cmask_lab as cm
    >>> one, other = cm.causal(), cm.causal()
    >>> held(one.number) is held(other.number)
    True
    """
    with _lock:
        source = _recent[number] if number in _recent else numbered(number)
        if isinstance(source, CompiledMask):
            _used(number, source)
            return HeldMask(source)
        if not isinstance(source, Mask):
            raise RuntimeError(
                f"attention: mask number {number} no longer exists; keep a reference to the mask for as long as the "
                f"graph that uses it, and don't save the number"
            )
        found = vars(source).get(ATTRIBUTE)
        if found is None:
            found = _held.get(hash(source))
            if found is None or found.source != source:
                _held[hash(source)] = found = HeldMask(source)
            object.__setattr__(source, ATTRIBUTE, found)
        _used(number, source)
        return found


def _used(number: int, source: Mask | CompiledMask) -> None:
    _recent[number] = source
    _recent.move_to_end(number)
    if len(_recent) > RECENT_MASKS:
        _recent.popitem(last=False)
