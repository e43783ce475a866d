"""RMS norm against its formula in float64, and where it rounds."""

import torch
from op_inputs import DTYPES, TOKENS, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@DTYPES
@TOKENS
def test_rms_norm(tokens, dtype):
    x, weight = random(tokens, 33, dtype=dtype), random(33, dtype=dtype, seed=1)
    expected = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    actual = ops.rms_norm(x, weight, 1e-6)
    assert_within(actual, expected * weight.double(), tolerance("rms_norm", dtype), "norm")


def test_rms_norm_rounds_before_the_weight():
    x = torch.tensor([[1.0, 3.0]], dtype=torch.bfloat16)
    weight = torch.tensor([1.0078125, 1.0078125], dtype=torch.bfloat16)
    rounded = (x.float() / x.float().square().mean().sqrt()).to(torch.bfloat16)
    assert torch.equal(ops.rms_norm(x, weight, 0.0), rounded * weight)
