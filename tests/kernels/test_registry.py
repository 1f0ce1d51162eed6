from __future__ import annotations

import importlib.util
import warnings
from dataclasses import replace

import pytest
import torch
from cmask_lab.kernels import registry
from cmask_lab.kernels.registry import Problem, choose, load, names

PLANNED = {"blackwell"}
"""Backends that have a name and a place in the order before they have a module."""

CPU = Problem("cpu", None, torch.float32, 64, 64, 1, 2, 2, 128, 128, (64, 64))


class Fake:
    def __init__(self, reason: str | None):
        self.reason = reason

    def unsupported(self, problem: Problem) -> str | None:
        return self.reason


@pytest.fixture
def fakes(monkeypatch):
    """Backends that can run nothing or everything, as each test says; the rest cannot be imported."""
    backends: dict[str, Fake] = {}
    monkeypatch.setattr(registry, "_imported", lambda name: backends.get(name, "is not part of this version"))
    return backends


def on_gpu(major: int, minor: int = 0) -> Problem:
    return replace(CPU, device_type="cuda", capability=(major, minor), dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [(CPU, "cpu"), (on_gpu(9), "hopper"), (on_gpu(10), "blackwell"), (on_gpu(8), "portable"), (on_gpu(12), "portable")],
    ids=["cpu", "sm_90", "sm_100", "sm_80", "sm_120"],
)
def test_each_device_gets_its_backend(fakes, problem, wanted):
    fakes.update({name: Fake(None) for name in names()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice = choose(problem)
    assert choice.name == choice.expected == wanted
    assert list(choice.skipped) == list(names()[: names().index(wanted)])


def test_falls_to_the_next_with_one_line_of_warning(fakes):
    fakes.update({"hopper": Fake("has no softcap"), "portable": Fake(None), "reference": Fake(None)})
    with pytest.warns(UserWarning, match="backend hopper has no softcap; portable runs instead") as caught:
        choice = choose(on_gpu(9))
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert (choice.name, choice.expected, choice.skipped["hopper"]) == ("portable", "hopper", "has no softcap")
    assert str(choice).startswith("portable (hopper: has no softcap; blackwell: needs sm_100")


def test_a_named_backend_never_falls_to_another(fakes):
    fakes.update({"hopper": Fake("has no softcap"), "portable": Fake(None)})
    with pytest.raises(ValueError, match="backend 'hopper' can't run this: it has no softcap; use backend='auto'"):
        choose(on_gpu(9), "hopper")
    with pytest.raises(ValueError, match=r"'hopper' can't run this: it needs sm_90 to sm_90, this device is sm_80"):
        choose(on_gpu(8), "hopper")
    with pytest.raises(ValueError, match="'portable' can't run this: it runs on cuda tensors, these are on cpu"):
        choose(CPU, "portable")
    assert choose(on_gpu(9), "portable").name == "portable"


def test_nothing_can_run(fakes):
    fakes.update({"cpu": Fake("is tired"), "reference": Fake("is sick")})
    with pytest.raises(ValueError, match=r"no backend can run this: .*cpu is tired; reference is sick"):
        choose(CPU)


def test_unknown_names():
    for call in (load, lambda name: choose(CPU, name)):
        with pytest.raises(
            ValueError, match="'cuda' is not one of 'auto', 'hopper', 'blackwell', 'portable', 'cpu', 'reference'"
        ):
            call("cuda")


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch):
    def without_triton(name):
        raise ModuleNotFoundError("No module named 'triton'", name="triton")

    registry._imported.cache_clear()
    monkeypatch.setattr(registry.importlib, "import_module", without_triton)
    try:
        with pytest.raises(ValueError, match=r"portable needs the package triton \(pip install 'cmask-lab\[gpu\]'\)"):
            load("portable")
    finally:
        registry._imported.cache_clear()


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_every_backend_imports_here(entry):
    """Also those for other devices; but Triton's kernels need Triton."""
    if entry.name in PLANNED and importlib.util.find_spec(entry.module) is None:
        pytest.skip("is not part of this version")
    if "cuda" in entry.device_types and entry.name != "reference":
        pytest.importorskip("triton")
    assert load(entry.name).name == entry.name


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_backends_that_run_anywhere(name):
    backend = load(name)
    assert backend.name == name
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert backend.unsupported(replace(CPU, dtype=dtype, head_dim=300, softcap=True, sinks=True)) is None


def test_portable_says_what_it_cannot():
    pytest.importorskip("triton")
    backend = load("portable")
    assert backend.unsupported(on_gpu(8)) is None
    assert "not float64" in backend.unsupported(replace(on_gpu(8), dtype=torch.float64))
    assert "got 64 and 300" in backend.unsupported(replace(on_gpu(8), value_dim=300))
