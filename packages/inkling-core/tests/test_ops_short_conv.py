"""The short convolution against plain loops in float64; padding rows."""

import itertools

import pytest
import torch
from op_inputs import DTYPES, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@DTYPES
@pytest.mark.parametrize("taps", [2, 3, 4])
@pytest.mark.parametrize("lengths", [(1,), (3, 1, 5), (63, 129)], ids=str)
def test_short_conv(lengths, taps, dtype, poisoned_empty):
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    x = random(starts[-1], 7, dtype=dtype)
    history = random(len(lengths), taps - 1, 7, dtype=dtype, seed=1)
    weight = random(7, taps, seed=2)
    expected = torch.zeros_like(x, dtype=torch.float64)
    for q, (start, end) in enumerate(itertools.pairwise(starts)):
        padded = torch.cat([history[q], x[start:end]]).double()
        for t in range(end - start):
            window = padded[t : t + taps] * weight.double().T
            expected[start + t] = x[start + t].double() + window.sum(0)
    actual = ops.short_conv(x, history, weight, starts)
    assert_within(actual, expected, tolerance("short_conv", dtype), "conv")


def test_short_conv_leaves_padding_rows_at_zero():
    x = torch.full((5, 2), float("nan"))
    x[:3] = 1.0
    out = ops.short_conv(x, torch.zeros(1, 3, 2), torch.ones(2, 4), [0, 3])
    assert torch.isfinite(out).all() and torch.equal(out[3:], torch.zeros(2, 2))
