"""Designs: masks to layers and back, messages that are understood and messages that are refused by name."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from cmask_lab.widgets.design import Design, DesignError, Layer
from hypothesis import given
from hypothesis import strategies as st

import cmask_lab as cm

REGIONS = [
    cm.causal(),
    cm.window(3, 1),
    cm.documents([4, 6, 2]),
    cm.rect(q=(2, 9), k=(1, 7)),
    cm.prefix(3),
    cm.strided(3),
    cm.causal() | cm.prefix(2),
    cm.full() - cm.rect(q=(0, 4), k=(4, 8)),
]
LAYERS = st.lists(
    st.tuples(st.sampled_from(REGIONS), st.sampled_from(["add", "cut", "intersect"]), st.booleans()), max_size=6
)


@given(LAYERS)
def test_the_mask_is_the_left_fold_of_the_visible_layers(picked: list[tuple[cm.Mask, str, bool]]) -> None:
    layers = tuple(Layer(mask.node, op, visible=visible) for mask, op, visible in picked)
    dense = cm.empty().to_dense(12)
    for mask, op, visible in picked:
        if visible:
            region = mask.to_dense(12)
            dense = {"add": dense | region, "cut": dense & ~region, "intersect": dense & region}[op]
    design = Design(layers, 12, 12)
    assert (design.mask.to_dense(12) == dense).all()
    again = Design.of(design.mask, 12)
    assert (again.mask.to_dense(12) == dense).all()
    assert Design.read(design.message()).mask == design.mask


@pytest.mark.parametrize("count", [33, 200, 2000])
def test_many_layers_in_any_order_of_ops_are_still_one_mask(count: int) -> None:
    random = Random(count)
    dense = cm.empty().to_dense(12)
    layers: list[Layer] = []
    for _ in range(count):
        mask, op = random.choice(REGIONS), random.choice(["add", "cut", "intersect"])
        region = mask.to_dense(12)
        dense = {"add": dense | region, "cut": dense & ~region, "intersect": dense & region}[op]
        layers.append(Layer(mask.node, op))
    design = Design(tuple(layers), 12, 12)
    assert (design.mask.to_dense(12) == dense).all()
    assert design.mask.depth < 60
    assert eval(repr(design.mask), {"cm": cm}) == design.mask


def test_a_named_group_stays_one_layer_and_unnamed_algebra_comes_apart() -> None:
    text = (cm.causal() & cm.prefix(4)).named("text")
    design = Design.of(cm.documents([4, 4]) & cm.causal() | text, 8)
    assert [(layer.op, layer.node["type"], layer.name) for layer in design.layers] == [
        ("add", "documents", ""),
        ("intersect", "causal", ""),
        ("add", "and", "text"),
    ]
    assert design.mask == cm.documents([4, 4]) & cm.causal() | text
    assert "named('text')" in repr(design.mask)


def test_names_that_say_no_more_than_the_type_stay_out_of_the_mask() -> None:
    message = Design.of(cm.causal(), 8).message()
    assert message["layers"][0]["name"] == "Causal"
    assert repr(Design.read(message).mask) == "cm.causal()"


BAD = [
    ("layers", "many", "layers is 'many'"),
    ("q_len", 0, "q_len is 0; an integer in 1 … 16777216"),
    ("q_len", True, "q_len is True"),
    ("kv_len", 3.5, "kv_len is 3.5"),
    ("tile", [128], "tile is [128]; two integers"),
    ("tile", [128, "x"], "tile[1] is 'x'"),
    ("surprise", 1, "unknown field 'surprise'"),
    ("layers", [3], "layers[0] is 3; an object"),
    ("layers", [{"node": {"type": "causal"}, "op": "xor"}], "layers[0]: op is 'xor'; it is one of add, cut, intersect"),
    ("layers", [{"node": ["causal"]}], "layers[0]: node is ['causal']"),
    ("layers", [{"node": {"type": "full"}, "visible": "yes"}], "visible is 'yes'; true or false"),
    ("layers", [{"node": {"type": "full"}, "id": "a"}, {"node": {"type": "full"}, "id": "a"}], "the same id"),
    ("layers", [{"node": {"type": "full"}, "name": 7}], "name is 7; a string"),
    ("layers", [{"node": {"type": "full"}, "template": {"nome": 1}}], "template: unknown field 'nome'"),
]


@pytest.mark.parametrize(("field", "value", "says"), BAD)
def test_a_malformed_message_is_refused_by_name(field: str, value: Any, says: str) -> None:
    message = Design.of(cm.causal(), 8).message() | {field: value}
    with pytest.raises(DesignError, match=re.escape(says)):
        Design.read(message)


def test_masks_that_hold_several_masks_are_refused() -> None:
    with pytest.raises(DesignError, match="per_head mask holds several masks; edit one of them"):
        Design.of(cm.per_head([cm.causal(), cm.full()]), 8)
