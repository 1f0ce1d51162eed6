"""What the Studio's list of findings is made of."""

from __future__ import annotations

import pytest
from cmask_lab.widgets import linter
from cmask_lab.widgets.design import Design, Layer

import cmask_lab as cm

MASKS = {
    "empty-rows": (cm.causal() - cm.rect(q=(5, 9)), False),
    "future": (cm.window(3, 2), True),
}


@pytest.mark.parametrize("rule", linter.MENDS)
def test_a_layer_that_mends_leaves_nothing_to_mend(rule: str) -> None:
    mask, causal = MASKS[rule]
    design = Design.of(mask, 64)
    (finding,) = [each for each in linter.describe(design, causal=causal)["found"] if each["rule"] == rule]
    mended = design.edited(layers=(*design.layers, Layer(**finding["mend"])))
    assert rule not in {each["rule"] for each in linter.describe(mended, causal=causal)["found"]}


def test_a_mask_without_fault_has_no_findings() -> None:
    assert linter.describe(Design.of(cm.causal(), 4096)) == {"found": []}
