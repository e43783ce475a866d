"""The vocabulary head against its formula in float64."""

from op_inputs import DTYPES, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@DTYPES
def test_logits(dtype):
    x, head = random(3, 16, dtype=dtype), random(11, 16, dtype=dtype, seed=1)
    expected = x.double() @ head.double().T / 16
    assert_within(ops.logits(x, head, 16.0), expected, tolerance("logits", dtype), "logits")
