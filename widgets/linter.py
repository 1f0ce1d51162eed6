"""The linter's findings on a design, for the Studio's list, with the layer that mends those that one layer mends."""

from __future__ import annotations

from typing import Any

from cmask_lab.widgets.design import Design

from cmask_lab.compiler.check import check
from cmask_lab.masks import causal, window

MENDS: dict[str, dict[str, Any]] = {
    "empty-rows": {"op": "add", "name": "Every query itself", "node": window(0).node},
    "future": {"op": "intersect", "name": "Causal", "node": causal().node},
}
"""By rule: a layer on top that does what the remedy says."""


def describe(design: Design, *, causal: bool = False) -> dict[str, Any]:
    """Findings as :meth:`Finding.describe` gives them, each with its ``place`` for people and its ``mend``, if any.

    Args:
        causal: the model must not see the future.

    Raises:
        TypeError: causal is no bool.

    >>> import cmask_lab as cm
    >>> [finding] = describe(Design.of(cm.causal() - cm.rect(q=(6, 8)), 8))["found"]
    >>> finding["rule"], finding["place"], finding["mend"]["node"]
    ('empty-rows', 'rows 6–7', {'type': 'window', 'left': 0, 'right': 0})
    """
    if not isinstance(causal, bool):
        raise TypeError(f"check: causal is {causal!r}; it must be true or false")
    found = check(
        design.mask,
        design.q_len,
        design.kv_len,
        q_start=design.q_start,
        causal=causal,
        heads=design.heads,
        tile=design.tile,
    )
    return {"found": [{**each.describe(), "place": each.place, "mend": MENDS.get(each.rule)} for each in found]}
