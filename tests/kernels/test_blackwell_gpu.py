"""The cases of blackwell_cases.py on the chip. Nobody has run them yet."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from tests.kernels.blackwell_cases import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10, reason="needs sm_100 or sm_103"
    ),
]
