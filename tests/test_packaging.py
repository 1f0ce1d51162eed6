"""What is installed: the wheel's contents, the lazy package, the pins, and which PyTorch the set-up takes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import numpy
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"cmask_lab": "cmask_lab", "kernels": "cmask_lab/kernels", "widgets": "cmask_lab/widgets"}
"""Folders of the checkout, and where a wheel puts them."""

spec = importlib.util.spec_from_file_location("install", ROOT / ".ci" / "install.py")
assert spec is not None
assert spec.loader is not None
install = importlib.util.module_from_spec(spec)
sys.modules["install"] = install
spec.loader.exec_module(install)


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def requirements() -> dict[str, SpecifierSet]:
    """Every package that pyproject.toml names, with the versions it allows; the project itself left out."""
    groups = [project()["project"]["dependencies"], *project()["project"]["optional-dependencies"].values()]
    named = [Requirement(text) for group in groups for text in group]
    return {canonicalize_name(each.name): each.specifier for each in named if each.name != "cmask-lab"}


# The wheel ----------------------------------------------------------------------------------------------------------


def test_wheel_puts_one_name_at_top_level(wheel: Path) -> None:
    top = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert top == {"cmask_lab", f"cmask_lab-{project()['project']['version']}.dist-info"}


def test_wheel_contains_every_module_and_data_file(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for folder, target in SOURCES.items():
        for pattern in ("**/*.py", "py.typed", "bench/recorded/*.json", "static/*"):
            for path in (ROOT / folder).glob(pattern):
                if "frontend" not in path.parts and path.is_file():
                    expected.add(f"{target}/{path.relative_to(ROOT / folder).as_posix()}")
    assert inside == expected


def test_listed_packages_are_the_folders() -> None:
    listed = set(project()["tool"]["setuptools"]["packages"])
    found = {
        ".".join([*target.split("/"), *path.parent.relative_to(ROOT / folder).parts])
        for folder, target in SOURCES.items()
        for path in (ROOT / folder).rglob("__init__.py")
        if "frontend" not in path.parts
    }
    assert listed == found


# An environment with NumPy alone ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_python(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that runs code where only the wheel's contents, NumPy and the standard library can be imported."""
    site = tmp_path_factory.mktemp("site")
    numpy_root = Path(numpy.__file__).parent.parent
    for name in ("numpy", "numpy.libs"):
        if (numpy_root / name).exists():
            (site / name).symlink_to(numpy_root / name)
    (site / "cmask_lab").symlink_to(installed / "cmask_lab")
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(site)!r}); exec(sys.argv[1])"]


def run(bare_python: list[str], code: str) -> str:
    done = subprocess.run([*bare_python, code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_masks_compile_with_numpy_alone(bare_python: list[str]) -> None:
    code = """
import cmask_lab as cm
mask = cm.documents([700, 1300, 48]) & cm.causal()
print(cm.compile(mask, 2048).stats.visible_pairs, "torch" in sys.modules)
"""
    pairs = sum(n * (n + 1) // 2 for n in (700, 1300, 48))
    assert run(bare_python, code) == f"{pairs} False"


@pytest.mark.parametrize(("name", "extra", "conda"), [("attention", "gpu", "pytorch")])
def test_a_missing_package_is_answered_with_what_to_install(
    bare_python: list[str], name: str, extra: str, conda: str
) -> None:
    code = f"""
import cmask_lab as cm
try:
    cm.{name}
except ModuleNotFoundError as error:
    print(error)
"""
    message = run(bare_python, code)
    assert message.startswith(f"cmask_lab.{name} needs the package ")
    assert f"pip install 'cmask-lab[{extra}]'" in message
    assert f"conda install -c conda-forge {conda}" in message


def test_import_is_quick_and_loads_nothing_heavy() -> None:
    code = """
import sys, time
began = time.process_time()
import cmask_lab
took = time.process_time() - began
print(took, *({"torch", "triton", "IPython", "ipywidgets", "plotly", "anywidget"} & set(sys.modules)))
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    seconds, *heavy = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
    assert float(seconds) < 0.3
    assert not heavy


# The package's names ------------------------------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    import cmask_lab as cm

    for name in cm.__all__:
        assert getattr(cm, name) is not None, name
    assert dir(cm) == sorted(cm.__all__), "a reader who completes `cm.` sees the package's names and no others"


def test_every_public_name_is_documented(root: Path) -> None:
    import cmask_lab as cm

    text = (root / "docs" / "api.md").read_text()
    missing = [name for name in cm.__all__ if not name.startswith("_") and not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    import cmask_lab as cm

    with pytest.raises(AttributeError, match="module 'cmask_lab' has no attribute 'casual'"):
        cm.casual  # noqa: B018


def test_attention_stays_the_operator_when_its_module_is_imported() -> None:
    code = "import cmask_lab.attention, cmask_lab as cm; assert callable(cm.attention); cm.attention.__name__"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


# Pins and versions --------------------------------------------------------------------------------------------------


def test_every_requirement_is_pinned_to_a_version_it_allows() -> None:
    assert set(requirements()) <= set(pins())
    for name, version in pins().items():
        allowed = requirements().get(name)
        assert allowed is None or version in allowed, f"{name}=={version} is outside {allowed}"


def test_conda_environment_is_that_of_pyproject() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert f"python{project()['project']['requires-python']}" in conda
    assert f"pytorch={pins()['torch']}" in conda
    assert "--constraint constraints.txt" in pip["pip"]
    (editable,) = [line for line in pip["pip"] if line.startswith("--editable")]
    extras = re.fullmatch(r"--editable \.\[(.*)\]", editable)
    assert extras is not None
    # gpu comes with lab.
    assert set(extras[1].split(",")) | {"gpu"} == set(project()["project"]["optional-dependencies"])


def test_one_version_everywhere() -> None:
    import cmask_lab

    version = project()["project"]["version"]
    assert cmask_lab.__version__ == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"\n## {version} " in (ROOT / "CHANGELOG.md").read_text()


# Which PyTorch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "has_gpu", "wanted"),
    [
        ("Linux", False, "torch==2.13.0+cpu"),
        ("Linux", True, "torch==2.13.0"),
        ("Darwin", False, "torch==2.13.0"),
        ("Windows", False, "torch==2.13.0"),
    ],
)
def test_no_cuda_build_without_a_gpu(system: str, has_gpu: bool, wanted: str) -> None:
    assert install.torch_requirement("2.13.0", has_gpu, system) == wanted


@pytest.mark.parametrize(
    ("version", "cuda", "has_gpu", "suits"),
    [
        ("2.13.0+cpu", None, False, True),
        ("2.13.0+cpu", None, True, False),
        ("2.11.0+cu130", "13.0", True, True),
        ("2.11.0+cu130", "13.0", False, True),
        ("2.10.1+cu130", "13.0", True, False),
        ("2.9.0+cpu", None, False, False),
    ],
)
def test_a_pytorch_that_suits_is_kept(version: str, cuda: str | None, has_gpu: bool, suits: bool) -> None:
    assert install.Torch(version, cuda).suits(has_gpu) is suits


def test_a_kept_pytorch_is_held_with_its_triton() -> None:
    text = (ROOT / "constraints.txt").read_text()
    held = install.constraints_for(text, install.Torch("2.11.0+cu130", "13.0"))
    assert "torch==2.11.0+cu130\n" in held
    assert "torch==2.13.0" not in held
    assert "triton==" not in held
    assert f"numpy=={pins()['numpy']}\n" in held
    assert install.constraints_for(text, None) == text


def test_without_a_cpu_build_nothing_else_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[tuple[str, ...]] = []

    def no_such_build(*arguments: str) -> int:
        asked.append(arguments)
        return 1

    monkeypatch.setattr(install, "pip_install", no_such_build)
    monkeypatch.setattr(install, "find_torch", lambda python: None)
    monkeypatch.setattr(install, "gpu_present", lambda: False)
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install.sys, "prefix", str(tmp_path))
    assert install.main("lab", "demo") == 1
    assert [arguments[0] for arguments in asked] == ["torch==2.13.0+cpu"]
    assert "found no CPU build of PyTorch 2.13.0" in capsys.readouterr().err


# Make ---------------------------------------------------------------------------------------------------------------


def make(*arguments: str) -> str:
    return subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("goal", "stamp"), [("demo", "lab"), ("lab", "lab"), ("lint", "dev"), ("test", "dev"), ("docs", "dev")]
)
def test_a_second_run_installs_nothing(goal: str, stamp: str, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    assert "install.py" in make(goal, f"VENV={environment}")
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").touch()
    (environment / f".installed-{stamp}").touch()
    again = make(goal, f"VENV={environment}")
    assert "install.py" not in again
    assert "-m venv" not in again
