"""Every mask has a number of its own in this process, for as long as it lives."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

import cmask_lab as cm
from cmask_lab.masks.numbered import numbered

MASKS = {"region": cm.window(3), "sum": cm.causal() | cm.prefix(2), "compiled": cm.compile(cm.window(3), 8)}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_a_number_names_one_mask(mask):
    assert numbered(mask.number) is mask
    twins = [copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))]
    for twin in twins:
        assert numbered(twin.number) is twin
    assert len({each.number for each in (mask, *twins)}) == 4


def test_a_name_is_another_object():
    named = cm.window(3).named("local")
    assert numbered(named.number) is named


def test_a_number_ends_with_its_mask():
    number = cm.window(3).number
    gc.collect()
    assert numbered(number) is None


def test_numbers_are_no_part_of_the_meaning():
    one, other = cm.window(3), cm.window(3)
    assert one.number != other.number
    assert one == other
    assert hash(one) == hash(other)
    assert one.spec() == other.spec()
