"""Every example in a docstring of the package runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import cmask_lab

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules(package: str) -> Iterator[str]:
    """The names of a package's modules, itself first; kernels and widgets lie in folders of their own."""
    yield package
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.ispkg:
            yield from modules(found.name)
        else:
            yield found.name


NAMES = sorted({*modules("cmask_lab"), *modules("cmask_lab.kernels"), *modules("cmask_lab.widgets")})


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    failures: list[str] = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(example, out=failures.append)
    assert not runner.failures, "".join(failures)


def test_every_public_function_has_an_example() -> None:
    public = [(name, getattr(cmask_lab, name)) for name in cmask_lab.__all__]
    without = [name for name, value in public if inspect.isfunction(value) and ">>>" not in (value.__doc__ or "")]
    assert not without
