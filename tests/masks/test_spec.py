"""Spec and repr rebuild the mask exactly; a spec that is not ours is refused by name."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings

import cmask_lab
import cmask_lab.masks as cm
from cmask_lab.masks import Mask, SpecError
from cmask_lab.masks.mask import DEPTH_LIMIT
from cmask_lab.masks.spec import READERS
from tests.masks.samples import masks
from tests.masks.test_regions import CASES

PER_HEAD = cm.per_head([cm.causal(), cm.window(3).named("narrow")])
TOP_LEVEL = [PER_HEAD, cm.per_batch([PER_HEAD, PER_HEAD]), cm.per_batch([cm.documents([3, 1]), cm.documents([4])])]


def check_round_trip(mask: Mask) -> None:
    spec = mask.spec()
    text = json.dumps(spec, allow_nan=False)
    for rebuilt in (cm.from_spec(spec), cm.from_spec(text), cm.from_spec(text.encode())):
        assert rebuilt == mask
        assert rebuilt.spec() == spec  # names too
    rebuilt = eval(repr(mask), {"cm": cmask_lab})
    assert rebuilt == mask
    assert rebuilt.spec() == spec
    assert repr(rebuilt) == repr(mask)


@pytest.mark.parametrize("name", CASES)
def test_regions_round_trip(name: str) -> None:
    check_round_trip(CASES[name][0])
    check_round_trip(CASES[name][0].named('a "name" <b>'))


@pytest.mark.parametrize("mask", TOP_LEVEL, ids=repr)
def test_masks_for_heads_and_batches_round_trip(mask: Mask) -> None:
    check_round_trip(mask)


@settings(max_examples=200)
@given(masks())
def test_compositions_round_trip(mask: Mask) -> None:
    check_round_trip(mask)


def test_named_parts_round_trip() -> None:
    mask = ((cm.causal() & cm.prefix(3)).named("a") & ~cm.sink(2).named("b")).named("c") - cm.suffix(9)
    check_round_trip(mask)
    assert repr(mask) == (
        "((cm.causal() & cm.prefix(3)).named('a') & (~cm.sink(2).named('b'))).named('c') - cm.suffix(9)"
    )


def test_long_arrays_are_complete_in_repr() -> None:
    check_round_trip(cm.documents(range(1, 2000)))


def test_every_node_type_is_sampled() -> None:
    seen: set[str] = set()

    def collect(mask: Mask) -> None:
        seen.add(mask.type)
        for child in mask.children:
            collect(child)

    for mask in [*(mask for mask, _ in CASES.values()), *TOP_LEVEL]:
        collect(mask)
    assert seen == set(READERS)


def spec(node: Any) -> dict[str, Any]:
    return {"cmask": 1, "mask": node}


CAUSAL = {"type": "causal"}
NEIGHBORHOOD = cm.grid(4, 4).neighborhood(3).node

REFUSED: list[tuple[Any, str]] = [
    ([], "spec: expected an object with 'cmask' and 'mask', got []"),
    ({"mask": CAUSAL}, "spec: 'cmask', the version of the spec, is missing; a spec is what mask.spec() returns"),
    ({"cmask": 2, "mask": CAUSAL}, "spec: version 2 is unknown; this cmask_lab reads version 1"),
    ({"cmask": True, "mask": CAUSAL}, "spec: version True is unknown; this cmask_lab reads version 1"),
    ({"cmask": 1.0, "mask": CAUSAL}, "spec: version 1.0 is unknown; this cmask_lab reads version 1"),
    (
        {"cmask": 10**5000, "mask": CAUSAL},
        "spec: version a int that can't be shown (Exceeds the limit (4300 digits) for integer string conversion; use "
        "sys.set_int_max_str_digits() to increase the limit) is unknown; this cmask_lab reads version 1",
    ),
    ({"cmask": 1}, "spec: 'mask' is missing; a spec is what mask.spec() returns"),
    ({"cmask": 1, "mask": CAUSAL, "run": "x"}, "spec: unknown field 'run'; a spec has the fields cmask, mask"),
    (spec("causal"), "spec: mask is 'causal'; it must be an object with a 'type'"),
    (spec({"type": "windw"}), f"spec: mask: unknown type 'windw'; the types are {', '.join(READERS)}"),
    (spec({"type": ["causal"]}), f"spec: mask: unknown type ['causal']; the types are {', '.join(READERS)}"),
    (spec({}), f"spec: mask: unknown type None; the types are {', '.join(READERS)}"),
    (spec({"type": "causal", "x": 1}), "spec: mask: unknown field 'x' of a 'causal'; its fields are none"),
    (
        spec({"type": "window", "left": 1, "rigth": 0}),
        "spec: mask: unknown field 'rigth' of a 'window'; its fields are left, right",
    ),
    (spec({"type": "window", "left": 1}), "spec: mask: a 'window' has no field 'right'; its fields are left, right"),
    (spec({"type": "window", "left": True, "right": 0}), "spec: mask.left is True; it must be an integer"),
    (spec({"type": "window", "left": 1.0, "right": 0}), "spec: mask.left is 1.0; it must be an integer"),
    (spec({"type": "window", "left": float("nan"), "right": 0}), "spec: mask.left is nan; it must be an integer"),
    (spec({"type": "window", "left": "1", "right": 0}), "spec: mask.left is '1'; it must be an integer"),
    (spec({"type": "window", "left": -1, "right": 0}), "spec: mask: window: left is -1; it must be at least 0"),
    (
        spec({"type": "prefix", "n": 10**30}),
        f"spec: mask: prefix: n is {10**30}; it must be at most {2**31 - 1}",
    ),
    (spec({"type": "prefix", "n": None}), "spec: mask.n is None; it must be an integer"),
    (
        spec({"type": "rect", "q": [1, 2, 3], "k": None}),
        "spec: mask: rect: q is [1, 2, 3]; it must be a pair (start, stop)",
    ),
    (
        spec({"type": "rect", "q": [5, 2], "k": None}),
        "spec: mask: rect: q is (5, 2); a range [start, stop) needs start <= stop",
    ),
    (spec({"type": "rect", "q": 5, "k": None}), "spec: mask.q is 5; it must be a list"),
    (spec({"type": "documents", "lengths": [2, "3"]}), "spec: mask.lengths[1] is '3'; it must be an integer"),
    (
        spec({"type": "documents", "lengths": [2, -3]}),
        "spec: mask: documents: length 1 is -3; every document needs a length of at least 0",
    ),
    (
        spec({"type": "documents", "lengths": [2], "ids": [0]}),
        "spec: mask: unknown field 'ids' of a 'documents'; its fields are lengths",
    ),
    (spec({"type": "documents"}), "spec: mask: a 'documents' has no field 'lengths'; its fields are lengths"),
    (
        spec({"type": "tiles", "q_size": 2, "k_size": 2, "rows": ["10", 1]}),
        "spec: mask.rows[1] is 1; it must be a string",
    ),
    (
        spec({"type": "tiles", "q_size": 2, "k_size": 2, "rows": ["10", "1"]}),
        "spec: mask: tiles: row 1 is '1'; rows are strings of 0 and 1, all of one length",
    ),
    (spec({"type": "and", "args": [CAUSAL]}), "spec: mask: and: 1 operands in args; there must be at least 2"),
    (spec({"type": "minus", "args": [CAUSAL] * 3}), "spec: mask: minus: 3 operands in args; there must be 2"),
    (spec({"type": "or", "args": [CAUSAL, {"type": "not", "arg": 3}]}),
     "spec: mask.args[1].arg is 3; it must be an object with a 'type'"),
    (
        spec({"type": "not", "arg": {"type": "per_head", "masks": [CAUSAL]}}),
        "spec: mask: not: a per_head mask stands at the top only; apply the operation to each of its masks",
    ),
    (
        spec({"type": "grid", "shape": [2, 3], "kind": "ring", "radius": 2}),
        "spec: mask: unknown kind 'ring' of a 'grid'; the kinds are disk, box, neighborhood, axial, causal_time",
    ),
    (
        spec({"type": "grid", "shape": [2, 3], "kind": "disk", "radii": [2]}),
        "spec: mask: unknown field 'radii' of a 'grid'; its fields are shape, kind, radius",
    ),
    (
        spec({**NEIGHBORHOOD, "causal": [0, False]}),
        "spec: mask.causal[0] is 0; it must be true or false",
    ),
    (spec({"type": "causal", "name": 7}), "spec: mask.name is 7; it must be a string"),
    ('{"cmask": 1, "mask": {"type": "prefix", "n": NaN}}', "spec: NaN is not a number of JSON"),
    ('{"cmask": 1, "cmask": 1, "mask": {"type": "causal"}}', "spec: field 'cmask' stands twice in one object"),
    ("cm.causal()", "spec: not JSON: Expecting value: line 1 column 1 (char 0)"),
    ("[" * 100_000, "spec: nested too deep"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_bad_spec_is_refused_by_name(bad: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        cm.from_spec(bad)
    assert str(caught.value) == message


def nested(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = CAUSAL
    for _ in range(levels - 1):
        node = {"type": "not", "arg": node}
    return node


def test_nesting_is_limited_in_a_spec_and_in_python() -> None:
    deepest = cm.from_spec(spec(nested(DEPTH_LIMIT)))
    assert deepest.depth == DEPTH_LIMIT
    assert (
        deepest.intervals(5).visible_pairs == cm.causal().intervals(5).visible_pairs - 15 + 10
    )  # an odd number of nots
    check_round_trip(deepest)
    with pytest.raises(SpecError, match=f"^spec: nested too deep; at most {DEPTH_LIMIT} levels are allowed$"):
        cm.from_spec(spec(nested(DEPTH_LIMIT + 1)))
    with pytest.raises(SpecError, match="nested too deep"):
        cm.from_spec(spec(nested(50_000)))
    with pytest.raises(ValueError, match=f"^not: masks nested {DEPTH_LIMIT + 1} deep; at most {DEPTH_LIMIT} levels"):
        deepest.__invert__()


def test_a_spec_holds_json_types_only() -> None:
    for mask, _ in CASES.values():
        text = json.dumps(mask.spec(), allow_nan=False)
        assert json.loads(text) == mask.spec()


def test_a_mask_from_another_process_equals_one_made_here() -> None:
    """A hash holds in one process alone, so a mask must not travel with the one it was asked for there."""
    mask = cm.documents([3, 5]) & cm.grid(2, 4).disk(2).named("image")
    program = (
        "import pickle, sys, cmask_lab as cm\n"
        "mask = cm.documents([3, 5]) & cm.grid(2, 4).disk(2).named('image')\n"
        "hash(mask)\n"
        "sys.stdout.buffer.write(pickle.dumps(mask))"
    )
    there = pickle.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert there == mask
    assert hash(there) == hash(mask)
    assert repr(there) == repr(mask)


def test_a_copied_mask_cannot_be_changed() -> None:
    mask = cm.documents([3, 5])
    for twin in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask)):
        with pytest.raises(ValueError, match="read-only"):
            twin.lengths[0] = 4
