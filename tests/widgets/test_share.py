"""Links that hold a design: what goes in comes out, and nothing else does."""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import replace

import pytest
from cmask_lab.widgets.design import Design, DesignError
from cmask_lab.widgets.share import LONGEST_FRAGMENT, design_in, fragment
from cmask_lab.widgets.studio import Studio
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm

DESIGN = Design.of((cm.documents([300, 212]) & cm.causal()) | cm.rect(q=(0, 9)), 512, 600, tile=(64, 128))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([cm.causal(), cm.window(3, 9), cm.sink(4)]), st.booleans()), max_size=6))
def test_a_design_comes_out_as_it_went_in(picked):
    layers = tuple(
        replace(Design.of(mask, 64).layers[0], visible=visible, op="cut", name=f"№ {n}")
        for n, (mask, visible) in enumerate(picked)
    )
    design = replace(DESIGN, layers=layers, q_start=7)
    assert replace(design_in("http://h/lab/tree/a.ipynb?x=1#" + fragment(design)), rev=design.rev) == design


def test_a_studio_opens_from_a_link():
    studio = Studio.from_link("http://h/lab#" + fragment(DESIGN), autosave=None)
    assert studio.mask == DESIGN.mask
    assert (studio.design.q_len, studio.design.kv_len, studio.design.tile) == (512, 600, (64, 128))
    studio.close()


def test_a_design_that_no_link_holds_is_refused_with_its_size():
    lengths = [random.Random(n).randint(1, 999) for n in range(20_000)]
    with pytest.raises(DesignError, match=f"beyond {LONGEST_FRAGMENT:,}"):
        fragment(Design.of(cm.documents(lengths), sum(lengths)))


def packed(text: bytes) -> str:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return "#cmask=" + base64.urlsafe_b64encode(deflate.compress(text) + deflate.flush()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("http://h/lab", "holds no design"),
        ("#cmask=", "holds no design"),
        ("#cmask=AAAA", "damaged|cut off"),
        ("#" + fragment(DESIGN)[:-9], "damaged|cut off"),
        (packed(b"[]"), "no design of version"),
        (packed(b'{"cmask_studio": 2}'), "no design of version"),
        (packed(b'{"cmask_studio": 1, "design": {"layers": 3, "q_len": 1, "kv_len": 1}}'), "layers is 3"),
        (packed(b" " * (5 << 20)), "more than"),
        (packed(b"\xff\xfe"), "damaged"),
    ],
)
def test_what_is_no_link_to_a_design_is_refused(link, says):
    with pytest.raises(DesignError, match=says):
        design_in(link)


def test_a_link_with_a_mask_that_does_not_compile_is_an_answer_and_no_edit():
    studio = Studio(cm.causal(), 64, autosave=None)
    longer = Design.of(cm.documents([64, 64]), 64)
    studio.editor.asks = {"shared": {"n": "1", "text": "#" + fragment(longer)}}
    assert "error" in studio.editor.answers["shared"]
    assert studio.mask == cm.causal()
    studio.close()
