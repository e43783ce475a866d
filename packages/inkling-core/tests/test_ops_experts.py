"""Routed and shared experts against loops over tokens in float64."""

import pytest
import torch
from op_inputs import DTYPES, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance


@DTYPES
@pytest.mark.parametrize("tokens", [1, 5, 63])
def test_experts(tokens, dtype, poisoned_empty):
    num, width, hidden, chosen = 5, 37, 65, 2
    x = random(tokens, hidden, dtype=dtype)
    w13 = random(num, 2 * width, hidden, dtype=dtype, seed=1) / hidden**0.5
    w2 = random(num, hidden, width, dtype=dtype, seed=2) / width**0.5
    weights = random(tokens, chosen, dtype=dtype, seed=3)
    draw = torch.Generator().manual_seed(4)
    ids = torch.stack([torch.randperm(num, generator=draw)[:chosen] for _ in range(tokens)])
    expected = torch.zeros(tokens, hidden, dtype=torch.float64)
    for t in range(tokens):
        for j, e in enumerate(ids[t].tolist()):
            both = w13[e].double() @ x[t].double()
            act = torch.nn.functional.silu(both[0::2]) * both[1::2]
            expected[t] += weights[t, j].double() * (w2[e].double() @ act)
    actual = ops.experts(x, ids, weights, w13, w2)
    assert_within(actual, expected, tolerance("experts", dtype), "experts")


@DTYPES
def test_shared_experts(dtype):
    x, gamma = random(5, 8, dtype=dtype), random(5, 2, dtype=dtype, seed=1)
    w13 = random(2, 12, 8, dtype=dtype, seed=2) / 3
    w2 = random(2, 8, 6, dtype=dtype, seed=3) / 3
    expected = torch.zeros(5, 8, dtype=torch.float64)
    for s in range(2):
        both = x.double() @ w13[s].double().T
        act = torch.nn.functional.silu(both[:, 0::2]) * both[:, 1::2] * gamma[:, s, None].double()
        expected += act @ w2[s].double().T
    actual = ops.shared_experts(x, gamma, w13, w2)
    assert_within(actual, expected, tolerance("shared_experts", dtype), "shared")
