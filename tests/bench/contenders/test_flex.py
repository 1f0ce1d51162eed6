"""What FlexAttention is given: a block mask made from our tiles, and a predicate for any mask."""

from __future__ import annotations

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import subjects
from cmask_lab.bench.contenders.contender import Setting
from cmask_lab.bench.contenders.flex import Flex, block_mask_from_tiles

CPU = torch.device("cpu")


def setting(mask: cm.Mask | subjects.Subject, length: int) -> Setting:
    subject = mask if isinstance(mask, subjects.Subject) else subjects.plain(mask, length)
    compiled = cm.compile(subject.mask, length)
    return Setting(subject, compiled, CPU, torch.float32, 1, 2, 2, 32, needs_grad=False)


@pytest.mark.parametrize("seq_len", [1024, 1000])
@pytest.mark.parametrize("name", ["causal", "hstu", "reward", "clear-r8"])
def test_a_block_mask_from_tiles_is_the_one_that_flex_makes(name: str, seq_len: int) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    subject = subjects.subject(name, seq_len)
    assert subject.predicate is not None
    mask_mod = subject.predicate(CPU, None)
    made = block_mask_from_tiles(cm.compile(subject.mask, seq_len), mask_mod, (128, 128), CPU)
    theirs = create_block_mask(mask_mod, 1, 1, seq_len, seq_len, device="cpu", BLOCK_SIZE=(128, 128))
    assert torch.equal(made.to_dense(), theirs.to_dense())
    if seq_len % 128:
        return  # of the last rows' blocks Flex calls none full, and we call full what is full as far as it goes
    for counts, indices in (("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices")):
        assert torch.equal(getattr(made, counts), getattr(theirs, counts))
        for row in range(made.kv_num_blocks.shape[-1]):
            n = int(getattr(made, counts)[0, 0, row])
            assert torch.equal(getattr(made, indices)[0, 0, row, :n], getattr(theirs, indices)[0, 0, row, :n])


def test_flex_gets_a_predicate_for_masks_that_differ_by_head() -> None:
    masks = [cm.causal(), cm.window(3), cm.causal()]
    flex = Flex("flex-triton")
    predicate = flex._predicate(setting(cm.per_head(masks), 40))
    q, kv, b = torch.arange(40)[:, None], torch.arange(40)[None], torch.tensor(0)
    for head, mask in enumerate(masks):
        assert torch.equal(predicate(b, torch.tensor(head), q, kv).expand(40, 40), torch.from_numpy(mask.to_dense(40)))
