"""The Python side of the Studio without a browser: what its traits do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget", reason="the Studio is an extra: pip install 'cmask-lab[lab]'")

from cmask_lab.widgets.design import Design, DesignError
from cmask_lab.widgets.studio import Studio

import cmask_lab as cm

MASK = cm.documents([512, 1536]) & cm.causal()


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    made = Studio(MASK, autosave=tmp_path / "kept.json")
    yield made
    made.close()


def edit(studio: Studio, rev: str = "browser:1", **changes: Any) -> None:
    """What the front end does with an edit."""
    studio.editor.design = studio.design.message() | {"rev": rev} | changes


def ask(studio: Studio, kind: str, **question: Any) -> dict[str, Any]:
    studio.editor.asks = {**studio.editor.asks, kind: {"n": f"t:{len(studio.editor.answers)}:{question}", **question}}
    return studio.editor.answers[kind]


def test_the_report_says_what_the_compiler_says(studio: Studio) -> None:
    report, compiled = studio.editor.report, cm.compile(MASK, 2048, tile=(128, 128))
    for name in ("visible_pairs", "full_tiles", "partial_tiles", "empty_tiles", "runs", "patterns", "descriptor_bytes"):
        assert report["stats"][name] == getattr(compiled.stats, name)
    rows = report["q_tiles"]
    counts = np.frombuffer(studio.editor.tile_data, "<i4", 2 * rows).reshape(2, rows)
    assert (counts == [compiled.tiles.full_per_row, compiled.tiles.partial_per_row]).all()
    classes = np.frombuffer(studio.editor.tile_data, np.uint8, offset=8 * rows)
    assert (classes.reshape(rows, -1) == compiled.tile_map()).all()
    assert report["predicted"]["ms"] > report["predicted"]["floor_ms"] > 0


def test_an_edit_in_the_browser_reaches_the_mask_and_its_observers(studio: Studio) -> None:
    seen: list[cm.Mask] = []
    studio.observe(lambda change: seen.append(change["new"]), "mask")
    layers = [*studio.design.message()["layers"], {"id": "n", "op": "add", "node": {"type": "prefix", "n": 256}}]
    edit(studio, layers=layers)
    assert studio.mask == MASK | cm.prefix(256)
    assert seen == [MASK | cm.prefix(256)]
    assert studio.editor.report["rev"] == "browser:1"
    assert studio.compiled.stats.visible_pairs == cm.compile(MASK | cm.prefix(256), 2048).stats.visible_pairs


def test_a_draft_is_compiled_and_answered_but_is_no_edit_yet(studio: Studio) -> None:
    layers = [{"id": "n", "op": "add", "node": {"type": "prefix", "n": 7}}]
    edit(studio, layers=layers, draft=True)
    assert studio.mask == MASK
    assert studio.editor.report["draft"]
    assert studio.editor.report["stats"]["visible_pairs"] == 7 * 2048
    edit(studio, rev="browser:2", layers=layers)
    assert studio.mask == cm.prefix(7)


def test_a_mask_set_in_python_reaches_the_browser(studio: Studio) -> None:
    before = studio.editor.design["rev"]
    studio.mask = cm.window(100) | cm.rect(q=(0, 4096), k=(0, 64))
    design = studio.editor.design
    assert design["rev"] != before
    assert [layer["node"]["type"] for layer in design["layers"]] == ["window", "rect"]
    assert design["q_len"] == 4096, "the plane grows to hold the mask"
    assert studio.editor.report["ok"]


def test_hidden_layers_survive_an_edit_that_only_hides(studio: Studio) -> None:
    layers = studio.design.message()["layers"]
    layers[1]["visible"] = False
    edit(studio, layers=layers)
    assert studio.mask == cm.documents([512, 1536])
    assert len(studio.editor.design["layers"]) == 2


def test_a_question_that_comes_with_a_design_is_about_that_design(studio: Studio) -> None:
    design = Design.of(cm.window(5), 300)
    studio.editor.set_state({"asks": {"code": {"target": "python", "n": "new"}}, "design": design.message()})
    assert "cm.window(5, 0)" in studio.editor.answers["code"]["text"]
    assert studio.mask == cm.window(5)


@pytest.mark.parametrize("message", [None, 3, [], {"layers": []}, {"layers": [{}], "q_len": 4, "kv_len": 4}])
def test_a_malformed_design_is_refused_and_the_widget_lives_on(studio: Studio, message: Any) -> None:
    studio.editor.design = message
    assert studio.editor.problem.startswith("The message was refused. design")
    assert studio.mask == MASK
    edit(studio, rev="browser:9", layers=[{"node": {"type": "causal"}}])
    assert studio.editor.problem == ""
    assert studio.mask == cm.causal()


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"type": "causl"}, "unknown type 'causl'"),
        ({"type": "prefix", "n": -1}, "prefix"),
        ({"type": "window", "left": 1}, "no field 'right'"),
        ({"type": "documents", "lengths": [4096]}, "4096"),
    ],
)
def test_a_mask_that_does_not_compile_is_an_answer(studio: Studio, node: dict[str, Any], says: str) -> None:
    edit(studio, layers=[{"node": node}])
    report = studio.editor.report
    assert not report["ok"]
    assert says in report["error"]
    assert studio.compiled is None
    assert studio.mask == MASK, "the last mask that made sense"
    edit(studio, rev="browser:2", layers=[{"node": {"type": "full"}}])
    assert studio.mask == cm.full()


def test_questions_are_answered(studio: Studio) -> None:
    code = ask(studio, "code", target="python")
    namespace: dict[str, Any] = {}
    exec(code["text"], namespace)
    assert namespace["mask"] == MASK
    assert json.loads(ask(studio, "code", target="json")["text"]) == MASK.spec()
    assert "unknown" in ask(studio, "code", target="fortran")["error"]
    row = ask(studio, "tile", tile_row=9)
    assert row["runs"] == [[4, 9]]
    assert [tile for tile, _ in row["partial"]] == [9]
    assert len(row["patterns"]["0"]) == 128 * 128 // 4
    assert "16, counted from 0" in ask(studio, "tile", tile_row=99)["error"]
    made = ask(studio, "template", name="sliding_window", params={"window": 64})
    assert made["node"] == cm.window(63).node
    assert "no mask is called" in ask(studio, "template", name="nonsense", params={})["error"]
    assert ask(studio, "code")["error"] == "KeyError: 'target'"


@pytest.mark.parametrize("asks", [{"weather": {"n": 1}}, {"code": 3}, {"code": {"target": "json"}}])
def test_a_malformed_question_is_refused(studio: Studio, asks: dict[str, Any]) -> None:
    studio.editor.asks = asks
    assert "is no question with a number; kinds are code, tile, template" in studio.editor.problem
    assert ask(studio, "code", target="json")["language"] == "json"


def test_every_export_target_answers_with_text_or_a_reason(studio: Studio) -> None:
    for target in studio.editor.targets:
        answer = ask(studio, "code", target=target)
        assert ("text" in answer) != ("error" in answer)


def test_the_linter_answers_about_the_design_on_screen(studio: Studio) -> None:
    studio.mask = cm.causal() - cm.rect(q=(2047, 2048))
    (finding,) = ask(studio, "check", causal=False)["found"]
    assert (finding["rule"], finding["rows"], finding["place"]) == ("empty-rows", [[2047, 2048]], "row 2047")
    studio.mask = cm.window(0, 1)
    assert ask(studio, "check", causal=False)["found"] == []
    assert [each["rule"] for each in ask(studio, "check", causal=True)["found"]] == ["future"]
    assert "causal is 'yes'" in ask(studio, "check", causal="yes")["error"]


def test_edits_from_many_threads_end_in_one_consistent_state(studio: Studio) -> None:
    """Callbacks of widgets may run on several threads at once."""

    def drag(name: int) -> None:
        for n in range(8):
            edit(studio, rev=f"{name}:{n}", layers=[{"node": {"type": "prefix", "n": 1 + 100 * name + n}}])

    threads = [threading.Thread(target=drag, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert studio.editor.report["rev"] == studio.design.rev
    assert studio.editor.report["stats"]["visible_pairs"] == studio.mask.node["n"] * 2048


def test_save_open_and_restore_bring_back_hidden_layers_and_the_plane(studio: Studio, tmp_path: Path) -> None:
    layers = studio.design.message()["layers"]
    layers[0] |= {"visible": False, "name": "the packed documents", "locked": True}
    edit(studio, layers=layers, tile=[64, 128], q_len=4096, kv_len=4096)
    path = studio.save(tmp_path / "design.json")
    assert cm.from_spec(json.loads(path.read_text())["spec"]) == studio.mask
    for again in (Studio.open(path, autosave=None), Studio.restore(tmp_path / "kept.json", autosave=None)):
        assert again.design.layers == studio.design.layers
        assert (again.design.q_len, again.design.tile) == (4096, (64, 128))
        assert again.mask == studio.mask
        again.close()


def test_open_takes_a_spec_and_refuses_other_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(MASK.spec()))
    opened = Studio.open(path, autosave=None)
    assert opened.mask == MASK
    opened.close()
    path.write_text("[1]")
    with pytest.raises(DesignError, match="neither a design of the Studio nor a mask's spec"):
        Studio.open(path)
    for text, words in ((b"{", "x.json: not JSON"), (b"\x7fELF\x80", "not JSON"), (b"[" * 100_000, "nested too deep")):
        path.write_bytes(text)
        with pytest.raises(DesignError, match=words):
            Studio.open(path)
    with pytest.raises(FileNotFoundError, match="a Studio writes it at the first edit"):
        Studio.restore(tmp_path / "none.json")


def test_lengths_come_from_the_mask_and_a_wrong_mask_is_named() -> None:
    made = Studio(cm.rect(q=(0, 300), k=(0, 700)), autosave=None)
    assert made.design.q_len == 700
    made.close()
    with pytest.raises(TypeError, match="Studio: mask is str; give a cmask_lab mask"):
        Studio("causal")  # type: ignore[arg-type]


def test_the_still_picture_has_the_numbers_and_a_png(studio: Studio) -> None:
    still = studio._still()["text/html"]
    assert f"{studio.compiled.stats.visible_pairs:,}" in still
    assert "data:image/png;base64," in still
    assert "cm.documents([512, 1536]) &amp; cm.causal()" in still


def test_a_million_tokens_are_reported_by_counts_alone() -> None:
    editor = Studio(cm.window(4096), 1 << 20, autosave=None).editor
    assert editor.report["q_tiles"] == 8192
    assert not editor.report["classes"]
    assert len(editor.tile_data) == 8 * 8192
    editor.close()
