"""Install the checkout into the virtual environment that runs this file: ``python .ci/install.py lab,dev``.

The one decision here is which PyTorch. On Linux the package index carries the CUDA build, gigabytes that a machine
without a GPU must not load; the small CPU build has the version ``2.13.0+cpu``. So a PyTorch that is already there and
suits the machine is kept; with an NVIDIA GPU the CUDA build is taken; without one, the ``+cpu`` build or none at all.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST_TORCH = (2, 11)

NO_CPU_BUILD = """
This machine has no NVIDIA GPU, and pip found no CPU build of PyTorch {version} for Python {python}.
Nothing was installed: the build on the default index is the one for CUDA. Do one of these, then run make again:
  - give pip the CPU index that PyTorch's "Get started locally" page names (Linux, Pip, CPU):
      PIP_EXTRA_INDEX_URL=<that index> make {goal}
  - put the wheel torch-{version}+cpu-…whl into a folder:   PIP_FIND_LINKS=<folder> make {goal}
  - use conda, which picks the right build by itself:        conda env create -f environment.yml
"""


@dataclass(frozen=True)
class Torch:
    """The PyTorch that an interpreter sees: its version, such as ``2.13.0+cpu``, and its CUDA version, if any."""

    version: str
    cuda: str | None

    def suits(self, has_gpu: bool) -> bool:
        """Whether it is new enough and built for this machine. On a machine without a GPU either build works."""
        numbers = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        return numbers >= OLDEST_TORCH and (self.cuda is not None or not has_gpu)


def pinned(constraints: str, package: str) -> str:
    """The version that a constraints file pins, such as ``2.13.0``."""
    found = re.search(rf"^{re.escape(package)}==(\S+)$", constraints, re.MULTILINE)
    if not found:
        raise ValueError(f"{CONSTRAINTS.name} pins no {package}; add a line {package}==VERSION")
    return found.group(1)


def torch_requirement(version: str, has_gpu: bool, system: str) -> str:
    """What to ask pip for. Only on Linux is the default build the one for CUDA."""
    return f"torch=={version}+cpu" if system == "Linux" and not has_gpu else f"torch=={version}"


def constraints_for(constraints: str, kept: Torch | None) -> str:
    """The constraints to install under: a PyTorch that is kept is held where it is, with the Triton it came with."""
    if kept is None:
        return constraints
    lines = [line for line in constraints.splitlines() if not line.startswith(("torch==", "triton=="))]
    return "\n".join([*lines, f"torch=={kept.version}", ""])


def find_torch(python: str) -> Torch | None:
    """The PyTorch that an interpreter can import, or None."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda]))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return Torch(*json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def gpu_present() -> bool:
    """Whether the NVIDIA driver lists a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    done = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "GPU" in done.stdout


def pip_install(*arguments: str) -> int:
    """Run pip; its exit status."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    print("+ pip install", *arguments, flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(extras: str, goal: str) -> int:
    """Install PyTorch if it is missing, then the checkout (editable) with the extras."""
    has_gpu = gpu_present()
    pins = CONSTRAINTS.read_text()
    version = pinned(pins, "torch")
    torch = find_torch(sys.executable)
    kept = torch if torch and torch.suits(has_gpu) else None
    limits = Path(sys.prefix) / "constraints.txt"
    limits.write_text(constraints_for(pins, kept))
    if kept:
        print(f"PyTorch {kept.version} is there and is kept.")
    elif pip_install(torch_requirement(version, has_gpu, platform.system()), "--constraint", str(limits)):
        if not has_gpu and platform.system() == "Linux":
            print(NO_CPU_BUILD.format(version=version, python=platform.python_version(), goal=goal), file=sys.stderr)
        return 1
    status = pip_install("--editable", f".[{extras}]", "--constraint", str(limits))
    if status == 0 and has_gpu and (after := find_torch(sys.executable)) and after.cuda is None:
        print(
            f"PyTorch {after.version} has no CUDA, though this machine has a GPU: it will run on the CPU.",
            file=sys.stderr,
        )
    return status


if __name__ == "__main__":
    sys.exit(main(extras=sys.argv[1], goal=sys.argv[2] if len(sys.argv) > 2 else "demo"))
