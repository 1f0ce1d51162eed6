"""``cm.export`` and ``cm.export_targets``: what is asked for wrongly is refused with a reason."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.interop.export import TARGETS, export, export_targets
from tests.interop.samples import PER_BATCH, SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_the_answers_are_true(name):
    """A target that says yes gives a source that compiles; one that says no refuses for the same reason."""
    mask, q_len, kv_len, q_start = SAMPLES[name]
    lengths = {"q_len": q_len, "kv_len": kv_len, "q_start": q_start}
    for target, answer in export_targets(mask, **lengths).items():
        if answer.possible:
            compile(export(mask, target, **lengths), target, "exec" if target != "json" else "eval")
        else:
            with pytest.raises(ValueError, match=re.escape(answer.why)):
                export(mask, target, **lengths)


def test_answers_for_masks_that_differ_by_head():
    answers = export_targets(PER_BATCH, q_len=50)
    assert answers["flex"].possible
    assert set(answers) == set(TARGETS)


def test_lengths_come_from_the_mask():
    assert export(cm.documents([3, 5]), "flex") == export(cm.documents([3, 5]), "flex", q_len=8)
    assert export(cm.documents([3, 5]) & cm.causal(), "flex") == export(
        cm.documents([3, 5]) & cm.causal(), "flex", q_len=8
    )
    # What a sequence must at least be long is not its length.
    for open_ended in (cm.prefix(4) | cm.causal(), cm.global_tokens([(0, 2)]) | cm.window(3, 3)):
        with pytest.raises(ValueError, match="has no length of its own; pass q_len"):
            export(open_ended, "flex")
    answers = export_targets(cm.causal())
    assert answers["python"].possible
    assert answers["flex"] == (
        False,
        "export: cm.causal() has no length of its own; pass q_len, and kv_len if it differs",
    )


def test_refusals():
    with pytest.raises(ValueError, match="target 'fleks' is unknown; targets are python, json, flex"):
        export(cm.causal(), "fleks")
    with pytest.raises(ValueError, match=r"target \['json'\] is unknown; targets are python, json, flex"):
        export(cm.causal(), ["json"])
    with pytest.raises(ValueError, match="the mask was made for 8 keys and does not fit kv_len 4"):
        export(cm.documents([8]), "dense", q_len=4)
    with pytest.raises(TypeError, match="json has no option 'chip'; there are q_len, kv_len, q_start"):
        export(cm.causal(), "json", chip="hopper")
    with pytest.raises(
        TypeError, match="flex has no option 'tile'; there are q_len, kv_len, q_start, chip, backend, block_size"
    ):
        export(cm.causal(), "flex", q_len=8, tile=1)
    with pytest.raises(TypeError, match="the mask is str"):
        export("causal", "json")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 8), (8, 0)])
def test_planes_without_queries_or_keys(q_len, kv_len):
    """A target refuses, or its source runs and its arrays have no cells."""
    for target, answer in export_targets(cm.full(), q_len=q_len, kv_len=kv_len).items():
        if not answer.possible:
            assert "queries and" in answer.why or "separate ranges" in answer.why
            continue
        code = export(cm.full(), target, q_len=q_len, kv_len=kv_len)
        if target in ("json", "triton", "transformers", "xformers"):
            continue
        scope = {}
        exec(code, scope)
        for function in ("make_mask", "make_bias", "slices", "func_tensor", "startend_row_indices", "block_sparse"):
            if function in scope:
                scope[function]()


def test_formatters_and_linters_find_nothing_to_change(tmp_path):
    """In all sources of all targets; the kernels in the triton file keep the lines of this repository, 120 wide."""
    pytest.importorskip("ruff")
    for width in (88, 120):
        (tmp_path / str(width)).mkdir()
    for number, (mask, q_len, kv_len, q_start) in enumerate(SAMPLES.values()):
        lengths = {"q_len": q_len, "kv_len": kv_len, "q_start": q_start}
        for target, answer in export_targets(mask, **lengths).items():
            if answer.possible and target != "json" and (target != "triton" or number < 2):
                width = 120 if target == "triton" else 88
                (tmp_path / str(width) / f"{target}_{number}.py").write_text(export(mask, target, **lengths))
    for width in ("88", "120"):
        ruff = [sys.executable, "-m", "ruff"]
        line_length = ["--config", f"line-length = {width}"]
        for check in (["format", "--diff"], ["check", "--select", "E4,E7,F,I"]):
            command = [*ruff, *check, "--isolated", *line_length, str(tmp_path / width)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[:4000] + done.stderr


@pytest.mark.parametrize("name", ["number", "mask_number", "inside", "torch", "b", "h", "q", "k", "step", "where"])
def test_a_layer_may_have_the_name_of_anything_in_the_source(name):
    masks = [cm.full(), cm.window(1).named(name)]
    scope: dict = {}
    exec(export(cm.per_batch(masks), "dense", q_len=4), scope)
    made = scope["make_mask"]()
    for entry, mask in enumerate(masks):
        assert np.array_equal(made[entry, 0].numpy(), mask.to_dense(4))


def test_a_deep_mask_is_written_in_no_time():
    mask = cm.causal()
    for _ in range(90):
        mask = ~mask
    assert mask.formula == "¬" * 90 + "j ≤ i"
    scope: dict = {}
    exec(export(mask, "python"), scope)
    assert scope["mask"] == mask


@pytest.mark.parametrize("name", ["class", "a b", 3, ""])
def test_names_that_no_variable_can_have(name):
    with pytest.raises(ValueError, match="export: name is"):
        export(cm.causal(), "python", name=name)


@pytest.mark.parametrize("name", ['x"); print(1); ("', "", 3])
def test_names_that_no_attention_implementation_can_have(name):
    with pytest.raises(ValueError, match="export: name is"):
        export(cm.causal(), "transformers", name=name)
