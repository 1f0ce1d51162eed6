"""The golden vectors are up to date, and the package agrees with every one of them."""

from __future__ import annotations

import json

import numpy as np

import cmask_lab.masks as cm
from cmask_lab.masks.spec import READERS
from tests.masks import golden


def test_the_file_is_up_to_date() -> None:
    assert golden.PATH.read_text(encoding="utf-8") == golden.text(), "run python -m tests.masks.golden"


def test_the_package_agrees() -> None:
    entries = json.loads(golden.PATH.read_text(encoding="utf-8"))
    assert len(entries) > 300
    for entry in entries:
        table = cm.from_spec(entry["spec"]).intervals(entry["q_len"], entry["kv_len"], entry["q_start"])
        for name in ("row_ptr", "start", "stop"):
            assert np.array_equal(getattr(table, name), entry[name]), entry["spec"]


def test_every_node_type_is_there() -> None:
    found = golden.PATH.read_text(encoding="utf-8")
    for kind in set(READERS) - {"per_batch", "per_head"}:  # these two have one table for each of their masks
        assert f'"type":"{kind}"' in found
    for kind in ("disk", "box", "neighborhood", "axial", "causal_time"):
        assert f'"kind":"{kind}"' in found
