"""The gated activation against its formula in float64."""

import torch
from op_inputs import DTYPES, TOKENS, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@DTYPES
@TOKENS
def test_silu_and_mul(tokens, dtype):
    x = random(tokens, 34, dtype=dtype)
    gate, up = x.double()[:, 0::2], x.double()[:, 1::2]
    expected = gate * torch.sigmoid(gate) * up
    assert_within(ops.silu_and_mul(x), expected, tolerance("silu_and_mul", dtype), "silu")
