"""The cases of split_keys_cases.py on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.kernels.split_keys_cases import *  # noqa: F403

pytestmark = pytest.mark.gpu
