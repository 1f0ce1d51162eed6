"""Exported source, run in a process of its own, back to cells: what each target's text says, decoded cell by cell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

MODULE = "import exported\n"
"""Every target but JSON is a module; it is imported as a reader would."""

DECODERS = {
    "python": MODULE + "cells = exported.mask.to_dense(Q_LEN, KV_LEN)",
    "json": "import cmask_lab\ncells = cmask_lab.from_spec(open('exported.json').read()).to_dense(Q_LEN, KV_LEN)",
    "flex": MODULE
    + """
from torch.nn.attention.flex_attention import create_mask

cells = create_mask(exported.make_block_mask("cpu").mask_mod, 1, 1, Q_LEN, KV_LEN, "cpu")[0, 0]
""",
    "fa4": MODULE
    + """
i, j = np.arange(Q_LEN)[:, None], np.arange(KV_LEN)
cells = exported.sees(0 * i, 0 * i, i, j, [table.numpy() for table in exported.TABLES], np.where)
""",
    "flashmask": MODULE
    + """
i, (hidden_from,) = np.arange(Q_LEN)[:, None], exported.startend_row_indices()[0, 0].T
assert exported.CAUSAL
cells = (np.arange(KV_LEN) <= i) & (i < hidden_from)
""",
    "magi": MODULE
    + """
cells = np.zeros((Q_LEN, KV_LEN), bool)
for (q0, q1), (k0, k1), kind in zip(*(part.tolist() for part in exported.slices())):
    i, j = np.arange(q0, q1)[:, None], np.arange(k0, k1)
    cells[q0:q1, k0:k1] |= (not kind & 1 or j <= i + k1 - q1) & (not kind & 2 or j >= i + k0 - q0)
""",
    "hstu": MODULE
    + """
first, *rest = exported.func_tensor()[0, :, :Q_LEN, None].numpy()
j = np.arange(KV_LEN)
cells = j < first
for start, stop in zip(rest[::2], rest[1::2]):
    cells = cells | (start <= j) & (j < stop)
""",
    "flashinfer": MODULE
    + """
packed = exported.packed_custom_mask().numpy()
cells = np.unpackbits(packed, bitorder="little")[: Q_LEN * KV_LEN].reshape(Q_LEN, KV_LEN)
""",
    "transformers": MODULE + "cells = exported.mask_function(1, Q_LEN, KV_LEN)[0, 0]",
    "xformers": MODULE + "cells = exported.make_bias().materialize((Q_LEN, KV_LEN)) == 0",
    # Equal scores: each query gives all visible keys the same weight, and the values tell the keys apart.
    "triton": MODULE
    + """
q, k = torch.zeros(1, 1, Q_LEN, 16), torch.zeros(1, 1, KV_LEN, 16)
cells = exported.attention(q, k, torch.eye(KV_LEN)[None, None])[0, 0] > 0
""",
    "sdpa": MODULE + "cells = exported.make_mask()",
    "dense": MODULE + "cells = exported.make_bias() == 0",
}


def cells(target: str, text: str, q_len: int, kv_len: int, folder: Path) -> np.ndarray:
    """bool (q_len, kv_len), from running the text in a fresh process whose folder is ``folder``.

    Raises:
        AssertionError: it did not run; the message is what it said.
    """
    (folder / f"exported.{'json' if target == 'json' else 'py'}").write_text(text, encoding="utf-8")
    head = f"import numpy as np\nimport torch\nQ_LEN, KV_LEN = {q_len}, {kv_len}\n"
    (folder / "decode.py").write_text(f"{head}{DECODERS[target]}\nnp.save('cells', np.asarray(cells, bool))\n")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "decode.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{target}: {done.stderr}"
    return np.load(folder / "cells.npy")
