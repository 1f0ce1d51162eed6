"""The command line as a user meets it: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cmask_lab as cm
from cmask_lab import cli, doctor
from cmask_lab.bench import Report, demo
from cmask_lab.bench.timing import Rules

QUICK = ["--heads", "1", "--head-dim", "16", "--dtype", "float32", "--device", "cpu", "--seconds", "20"]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_without_a_command_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out = capsys.readouterr().out
    assert all(command in out for command in ("demo", "compile", "bench", "export", "doctor"))


def test_it_starts_quickly_and_without_pytorch() -> None:
    code = "import sys; from cmask_lab import cli; cli.main([]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_compile_prints_what_a_mask_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "causal", "--seq-len", "1024", "--tile", "128", "128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["full_tiles"], found["partial_tiles"], found["tile"]) == (28, 8, [128, 128])
    assert cm.from_spec(found["mask"]) == cm.causal()


def test_a_mask_can_be_a_file_a_suite_name_or_a_gallery_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mask.json"
    path.write_text(json.dumps((cm.window(3) | cm.prefix(2)).spec()))
    for name in (str(path), "hstu", cm.gallery.names()[0]):
        assert cli.main(["compile", name, "--seq-len", "2048"]) == 0, capsys.readouterr().err
        assert "density" in capsys.readouterr().out


def test_a_mask_that_was_made_for_some_length_is_taken_at_that_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mask.json"
    path.write_text(json.dumps((cm.documents([700, 337, 500]) & cm.causal()).spec()))
    assert cli.main(["compile", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["q_len"] == 1537
    assert cli.main(["export", str(path), "flex"]) == 0
    assert "Q_LEN, KV_LEN = 1537, 1537" in capsys.readouterr().out
    assert cli.main(["bench", str(path), "--baselines", "", "--direction", "forward", *QUICK]) == 0
    assert "S=1,537" in capsys.readouterr().out
    assert cli.main(["compile", "causal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["q_len"] == 32768


def test_a_part_of_the_plane(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seq-len", "4", "--kv-len", "104", "--q-start", "100"]
    assert cli.main(["compile", "causal", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["q_len"], found["kv_len"], found["visible_pairs"]) == (4, 104, 101 + 102 + 103 + 104)
    path = tmp_path / "mask.py"
    assert cli.main(["export", "causal", "dense", *arguments, "-o", str(path)]) == 0
    scope: dict = {}
    exec(path.read_text(), scope)
    assert scope["make_mask"]().sum() == found["visible_pairs"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cmask_lab", "export", "clear-r8", "flex", "--seq-len", "16384"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("causel", "did you mean 'causal'"),
        ("mine.py", "those whose name ends in .json are read"),
        ("?", "there are causal, hstu, reward"),
    ],
)
def test_a_name_that_nobody_has(capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    assert cli.main(["compile", name]) == 2
    assert said in capsys.readouterr().err


def test_a_design_that_the_studio_saved_is_a_mask_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    studio = cm.Studio(cm.window(3), 256, autosave=None)
    path = studio.save(tmp_path / "design.json")
    studio.close()
    assert cli.main(["export", str(path), "json"]) == 0
    assert cm.from_spec(capsys.readouterr().out) == cm.window(3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"cmask": 1, "mask": {"type": "__import__"}}', "mask.json: spec: "),
        (b"\x7fELF\x80\x81", "mask.json: not JSON: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "mask.json: nested too deep"),
        (b"", "mask.json: not JSON: Expecting value"),
        (b'{"cmask": 1, "cmask": 1}', "mask.json: field 'cmask' stands twice"),
        (b"[1]", "mask.json: spec: expected an object with 'cmask' and 'mask', got [1]"),
        (b'{"cmask_studio": 1}', "mask.json: spec: 'cmask', the version of the spec, is missing"),
    ],
)
def test_a_file_with_something_else_in_it_is_an_error(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mask.json"
    path.write_bytes(content)
    assert cli.main(["compile", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", str(tmp_path / "none.json")]) == 2
    assert "none.json: no such file; cmask export NAME json -o none.json" in capsys.readouterr().err
    (tmp_path / "folder.json").mkdir()
    assert cli.main(["compile", str(tmp_path / "folder.json")]) == 2
    assert "folder.json: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--json", "nowhere/r.json", "there is no folder"),
        ("--json", "r.html", "give a name that ends in .json"),
        ("--html", "r.json", "give a name that ends in .html"),
        ("--figure", "r.png", "give a name that ends in .svg or .html"),
        ("--json", "taken.json", "this is a folder"),
        ("--compare", "none.json", "no such file, and not one of"),
        ("--compare", "other.json", "other.json: report: this is none"),
        ("--compare", "binary.json", "binary.json: not JSON"),
    ],
)
def test_a_path_that_is_no_use_stops_a_benchmark_before_it_measures(
    option: str, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "taken.json").mkdir()
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setattr(cli, "_reports", lambda options: pytest.fail("it measured"))
    assert cli.main(["bench", "causal", option, str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert name in said


def test_export_names_a_folder_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "causal", "json", "-o", str(tmp_path / "a" / "b.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compile", "casual"], "mask 'casual': unknown; did you mean 'causal'"),
        (["compile", "hstu", "--seq-len", "100"], "100 is too short for the suite's 'hstu'; give at least 512"),
        (["bench"], "give a mask, or --suite paper"),
        (["bench", "causal", "--suite", "paper"], "not both"),
        (["bench", "causal", "--seq-len", "512,1024"], "several lengths go with --suite"),
        (["bench", "--suite", "paper", "--only", "nobody"], "no mask 'nobody'"),
        (["bench", "causal", "--seq-len", "512", "--ours", "cmask-cuda", *QUICK], "no backend 'cuda'"),
        (["bench", "causal", "--seq-len", "512", "--ours", "nosuch", *QUICK], "ours: 'nosuch' is unknown"),
        (["bench", "causal", "--seq-len", "512", *QUICK, "--head-dim", "0"], "head_dim: 0; give at least 1"),
        (["bench", "--suite", "four", "--seq-len", "512", *QUICK, "--head-dim", "0"], "head_dim: 0; give at least 1"),
        (["demo", "--seq-len", "0"], "0 is too short for the suite's"),
        (["demo", "--device", "cuda:99"], "device: 'cuda:99' is not here"),
        (["export", "causal", "cobol"], "cobol"),
    ],
)
def test_wrong_input_is_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_no_time_is_no_benchmark(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "causal", "--seconds", seconds])
    assert f"'{seconds}' is no number of seconds above 0" in capsys.readouterr().err


def test_bench_measures_writes_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path, page, figure = tmp_path / "r.json", tmp_path / "r.html", tmp_path / "r.svg"
    arguments = ["bench", "causal", "--seq-len", "512", "--direction", "forward", "--baselines", "sdpa-dense", *QUICK]
    assert cli.main([*arguments, "--json", str(json_path), "--html", str(page), "--figure", str(figure)]) == 0
    out = capsys.readouterr().out
    assert "sdpa-dense" in out
    assert Report.load(json_path).case.entry("cmask", "forward").timed
    assert page.read_text().startswith("<!doctype html>")
    assert figure.read_text().startswith("<svg")
    assert cli.main([*arguments, "--compare", str(json_path)]) == 0
    assert "not paired" in capsys.readouterr().out


def test_bench_runs_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "suite.json"
    arguments = ["--suite", "paper", "--only", "causal,window", "--seq-len", "512,1024", "--baselines", "sdpa-dense"]
    assert cli.main(["bench", *arguments, *QUICK, "--direction", "forward", "--json", str(path)]) == 0
    assert "geometric mean" in capsys.readouterr().out
    assert [(c.name, c.q_len) for c in Report.load(path).cases] == [
        ("causal", 512), ("window", 512), ("causal", 1024), ("window", 1024),
    ]  # fmt: skip


def test_a_wrong_result_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import cmask_lab.bench.contenders.ours as ours

    monkeypatch.setattr(ours.cm, "attention", lambda q, k, v, mask, **options: q + 0 * k + 0 * v)
    assert cli.main(["bench", "causal", "--seq-len", "512", "--baselines", "", *QUICK]) == 1
    assert "cmask forward wrong: query 0" in capsys.readouterr().err


def test_export_prints_or_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "window", "json", "--seq-len", "1024"]) == 0
    assert cm.from_spec(json.loads(capsys.readouterr().out)) == cm.window(255)
    target = tmp_path / "mask.py"
    assert cli.main(["export", "window", "python", "--seq-len", "1024", "-o", str(target)]) == 0
    assert "cm.window(255" in target.read_text()


def test_the_demo_does_the_whole_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without FlexAttention's CPU kernel, whose compiler takes longer than all the rest."""
    monkeypatch.setattr(demo, "baselines_for", lambda device_type: ("sdpa-dense",))
    small = demo.Size(512, 2, 16, "float32", "forward", 60.0, Rules(at_least=6, at_most=6, warmup_ms=0))
    monkeypatch.setitem(demo.SIZES, "cpu", small)
    said: list[str] = []
    report = demo.run(tmp_path, device="cpu", say=said.append)
    text = "\n".join(said)
    assert [case.title for case in report.cases] == ["causal", "HSTU", "reward model, short answers", "CLEAR r=16"]
    for case in report.cases:
        assert case.entry("cmask", "forward").status == "ok"
        assert case.entry("cmask", "forward").check.passed  # type: ignore[union-attr]
        assert {c.baseline for c in case.comparisons("forward", baselines_only=True)} == {"sdpa-dense"}
        assert case.title in text
    assert "make lab" in said[-1]
    assert Report.load(tmp_path / "report.json") == report
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img class='map'") == 4
    for name in ("causal", "hstu", "reward", "clear-r16"):
        spec = json.loads((tmp_path / "exported" / f"{name}.json").read_text())
        rebuilt = {"cm": cm}
        exec((tmp_path / "exported" / f"{name}.py").read_text(), rebuilt)
        assert cm.from_spec(spec) in [value for value in rebuilt.values() if isinstance(value, cm.Mask)]
        assert "flex_attention" in (tmp_path / "exported" / f"{name}.flex.py").read_text()


def test_the_doctor_looks_at_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for words in ("Python", "torch", "Devices", "Backends on", "hopper", "portable", "Baselines", "flex-fa4"):
        assert words in out
    findings = {f.name: f for f in doctor.examine()}
    assert findings["reference"].status == doctor.GOOD
    if not torch.cuda.is_available():
        assert findings["cpu"].status == doctor.GOOD
        assert (findings["flex-fa4"].status, findings["flex-fa4"].detail) == (doctor.MISSING, "needs a CUDA GPU")


def test_the_doctor_needs_no_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    last = list(doctor.examine())[-1]
    assert (last.status, last.name) == (doctor.MISSING, "PyTorch")
    assert "pip install 'cmask-lab[gpu]'" in last.detail
