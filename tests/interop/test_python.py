"""Targets ``python`` and ``json``: what comes out rebuilds the very same mask."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

import cmask_lab as cm
from cmask_lab.interop import python, spec_json
from cmask_lab.masks.spec import from_spec
from tests.interop.samples import PER_BATCH, PER_HEAD, SAMPLES

MASKS = {name: sample[0] for name, sample in SAMPLES.items()} | {"per head": PER_HEAD, "per batch": PER_BATCH}
MASKS["everything at once"] = cm.per_head(
    [
        cm.rect(k=(0, 512)).named("text rows")
        | cm.grid(16, 168, 192)
        .neighborhood((3, 7, 7), dilation=(1, 2, 2), causal=(True, False, False))
        .at(q=(512, 516608), k=(512, 516608))
        .named('a "quoted" name')
        | (cm.causal() & cm.documents(range(1, 70)) & ~cm.window(3, 5) & (cm.full() - (cm.prefix(3) - cm.prefix(2)))),
        cm.causal() - (cm.sink(2) - cm.window(2)) - cm.rect(q=(1, 2)),
        (cm.causal().named("text rows") | cm.prefix(7).named("class")).repeat([7] * 30).named("text rows"),
        ~(~cm.causal() & ~(cm.prefix(12345) | cm.suffix(123456) | cm.strided(1234, 123) | cm.window(12345, 6789))),
    ]
)


@pytest.mark.parametrize("name", MASKS)
def test_the_code_rebuilds_the_spec(name):
    scope = {}
    exec(python.source(MASKS[name], name="rebuilt"), scope)
    assert scope["rebuilt"].spec() == MASKS[name].spec()


@pytest.mark.parametrize("name", MASKS)
def test_json_rebuilds_the_spec(name):
    text = spec_json.source(MASKS[name])
    assert json.loads(text) == MASKS[name].spec()
    assert from_spec(text).spec() == MASKS[name].spec()


def test_a_formatter_finds_nothing_to_change(tmp_path):
    if shutil.which("ruff") is None:
        pytest.skip("ruff is not installed")
    for number, mask in enumerate(MASKS.values()):
        (tmp_path / f"mask_{number}.py").write_text(python.source(mask))
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_named_regions_become_variables():
    code = python.source(MASKS["text and image"])
    assert 'text_keys = cm.rect(k=(0, 11)).named("text keys")\n' in code
    assert "\nmask = text_keys | text_rows | the_image_s_disk\n" in code


def test_a_region_used_twice_is_written_once():
    rows = cm.rect(q=(0, 3)).named("rows")
    code = python.source(cm.per_head([rows | cm.causal(), rows & cm.causal()]))
    assert code.count("cm.rect") == 1


def test_a_bad_variable_name_is_refused():
    with pytest.raises(ValueError, match="name is 'a-b'; it must be a Python identifier"):
        python.source(cm.causal(), name="a-b")
