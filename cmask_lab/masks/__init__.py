"""What a mask means: regions of the (query, key) plane, put together by set algebra.

Needs NumPy alone. The names below are the public ones; ``cmask_lab`` offers them too.
"""

from cmask_lab.masks.combinators import per_batch, per_head
from cmask_lab.masks.grids import Grid, grid
from cmask_lab.masks.mask import Mask, Window
from cmask_lab.masks.placement import repeat
from cmask_lab.masks.regions import (
    anticausal,
    band,
    causal,
    empty,
    full,
    global_tokens,
    prefix,
    rect,
    sink,
    strided,
    suffix,
    window,
)
from cmask_lab.masks.spec import SpecError, from_spec
from cmask_lab.masks.tables import documents, explicit, from_dense, tiles, tree

__all__ = [
    "Grid",
    "Mask",
    "SpecError",
    "Window",
    "anticausal",
    "band",
    "causal",
    "documents",
    "empty",
    "explicit",
    "from_dense",
    "from_spec",
    "full",
    "global_tokens",
    "grid",
    "per_batch",
    "per_head",
    "prefix",
    "rect",
    "repeat",
    "sink",
    "strided",
    "suffix",
    "tiles",
    "tree",
    "window",
]
