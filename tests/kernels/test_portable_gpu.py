"""The cases of portable_cases.py on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.kernels.portable_cases import *  # noqa: F403

pytestmark = pytest.mark.gpu
