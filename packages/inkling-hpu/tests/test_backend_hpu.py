"""backend.py: every op of the law is replaced, and what no op takes is refused with its reason."""

from __future__ import annotations

import pytest
import torch

from inkling_core.backend import OP_NAMES, OpContext
from inkling_core.config import PRESETS
from inkling_core.weights.tiny import TINY
from inkling_hpu import ops
from inkling_hpu.backend import HPU, require

DEVICE = torch.device("cpu")
# mirrored like the rest, but run when weights are read: no decoder calls them
BLOCK_FORMATS = {
    f"{verb}_{name}" for verb in ("quantize", "dequantize") for name in ("mxfp8", "nvfp4")
}


def test_every_op_of_the_law_is_ours():
    assert set(HPU.ops) == set(OP_NAMES)
    assert set(ops.__all__) - set(OP_NAMES) == BLOCK_FORMATS
    bound = HPU.bind(OpContext(TINY, torch.bfloat16, DEVICE))
    for name in OP_NAMES:
        assert getattr(bound, name).__module__.startswith("inkling_hpu.ops.")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_published_models_are_taken(preset, dtype):
    require(OpContext(PRESETS[preset], dtype, DEVICE, tp_size=8))


def test_float16_is_refused_once():
    with pytest.raises(ValueError, match=r"float32, not torch\.float16") as caught:
        require(OpContext(TINY, torch.float16, DEVICE))
    assert str(caught.value).count("torch.float16") == 1


def test_ranks_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(ValueError, match="4 query heads do not divide by tensor-parallel size 3"):
        require(OpContext(TINY, torch.bfloat16, DEVICE, tp_size=3))
