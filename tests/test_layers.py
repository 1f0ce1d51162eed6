"""Imports run one way: the contract in pyproject.toml, checked by import-linter on an installed copy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

CHECK = """
from importlinter.cli import lint_imports
raise SystemExit(lint_imports(config_filename={config!r}, no_cache=True))
"""


def lint(config: Path, package: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of ``config`` on the package that lies in the folder ``package``."""
    code = CHECK.format(config=str(config))
    environment = os.environ | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True, check=False)


def test_imports_run_one_way(root: Path, installed: Path) -> None:
    done = lint(root / "pyproject.toml", installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_the_contract_sees_a_forbidden_import(root: Path, installed: Path, tmp_path: Path) -> None:
    """Turned upside down the contract must fail: it does read the real imports, those of kernels/ included."""
    upside_down = tmp_path / "pyproject.toml"
    upside_down.write_text(
        "[tool.importlinter]\nroot_package = 'cmask_lab'\n[[tool.importlinter.contracts]]\nname = 'reversed'\n"
        "type = 'layers'\nlayers = ['cmask_lab.compiler', 'cmask_lab.kernels']\n"
    )
    done = lint(upside_down, installed)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cmask_lab.kernels" in done.stdout


def test_every_module_has_a_layer(root: Path, installed: Path) -> None:
    """A module that no layer names would be free to import anything."""
    contract = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = {name for layer in contract["layers"] for name in re.split(r" [|:] ", layer)}
    modules = [path.relative_to(installed).with_suffix("").parts for path in (installed / "cmask_lab").rglob("*.py")]
    names = {".".join(parts).removesuffix(".__init__") for parts in modules} - {"cmask_lab", "cmask_lab.compiler"}
    assert not {name for name in names if not any(f"{name}.".startswith(f"{layer}.") for layer in layers)}
