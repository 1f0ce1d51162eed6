"""A gallery of the masks that the field uses, built from regions so that each can be taken apart and edited.

>>> import cmask_lab.masks.gallery as gallery
>>> gallery.names("plain")[:4]
['full', 'causal', 'sliding_window', 'bidirectional_window']
>>> gallery.get("sliding_window", window=128)
cm.window(127, 0)
>>> gallery.entry("clear").source
'CLEAR, arXiv:2412.16112'
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from cmask_lab.masks.gallery import (
    decoding,
    images,
    multimodal,
    neighborhoods,
    packed,
    plain,
    recommenders,
    sparse,
    training,
    video,
)
from cmask_lab.masks.gallery.catalogue import REGISTRY, Entry, Parameter, draw
from cmask_lab.masks.mask import Mask

__all__ = ["FAMILIES", "Entry", "Parameter", "draw", "entry", "get", "names"]

_MODULES = (plain, packed, multimodal, sparse, images, neighborhoods, video, recommenders, training, decoding)

FAMILIES = tuple(module.__name__.rpartition(".")[2] for module in _MODULES)
"""The families, each a file of this package, in the order of the catalogue."""


def names(family: str | None = None) -> list[str]:
    """The names of all entries, or of one family.

    >>> names("recommenders")
    ['hstu', 'hstu_packed']
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(f"gallery: family is {family!r}; it must be one of {', '.join(map(repr, FAMILIES))}")
    chosen = FAMILIES if family is None else (family,)
    return [name for each in chosen for name, entry in REGISTRY.items() if entry.family == each]


def entry(name: str) -> Entry:
    """Everything about one entry.

    >>> [parameter.name for parameter in entry("sink_window").parameters]
    ['sinks', 'window']
    """
    if name not in REGISTRY:
        near = get_close_matches(str(name), REGISTRY, 3, 0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "cm.gallery.names() lists them"
        raise ValueError(f"gallery: no mask is called {name!r}; {hint}")
    return REGISTRY[name]


def get(name: str, **params: Any) -> Mask:
    """The mask of that name; parameters that are not given have their defaults.

    >>> get("prefix_lm", prefix=2)
    cm.prefix(2).named('prefix') | cm.causal()
    """
    return entry(name).mask(**params)
