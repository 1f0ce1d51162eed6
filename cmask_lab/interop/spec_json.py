"""Target ``json``: the spec, laid out for people: one region a line, lists of numbers never broken up."""

from __future__ import annotations

import json
from typing import Any

from cmask_lab.masks.mask import Mask


def source(mask: Mask) -> str:
    """The mask's spec as JSON text; ``cm.from_spec`` reads it.

    >>> import cmask_lab as cm
    >>> print(source(cm.causal() & cm.documents([2, 3])))
    {
      "cmask": 1,
      "mask": {
        "type": "and",
        "args": [
          {"type": "causal"},
          {"type": "documents", "lengths": [2, 3]}
        ]
      }
    }
    <BLANKLINE>
    """
    return _laid_out(mask.spec(), 0) + "\n"


def _laid_out(value: Any, indent: int) -> str:
    """A region without children on one line, anything that holds regions on several."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(child, dict) or _holds_objects(child) for child in children):
        return json.dumps(value, ensure_ascii=False)
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {_laid_out(child, indent + 2)}" for key, child in value.items()]
        opening, closing = "{}"
    else:
        lines = [f"{inner}{_laid_out(child, indent + 2)}" for child in value]
        opening, closing = "[]"
    return "\n".join([opening, ",\n".join(lines), " " * indent + closing])


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
