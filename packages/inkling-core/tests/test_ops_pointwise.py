"""The small ops against float64 formulas: norm, activation, short convolution, experts, head."""

import itertools

import pytest
import torch

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
TOKENS = pytest.mark.parametrize("tokens", [1, 3, 5, 63, 127, 129, 1000], ids=lambda t: f"T{t}")


def random(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


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


@DTYPES
@TOKENS
def test_silu_and_mul(tokens, dtype):
    x = random(tokens, 34, dtype=dtype)
    gate, up = x.double()[:, 0::2], x.double()[:, 1::2]
    expected = gate * torch.sigmoid(gate) * up
    assert_within(ops.silu_and_mul(x), expected, tolerance("silu_and_mul", dtype), "silu")


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


@DTYPES
def test_logits(dtype):
    x, head = random(3, 16, dtype=dtype), random(11, 16, dtype=dtype, seed=1)
    expected = x.double() @ head.double().T / 16
    assert_within(ops.logits(x, head, 16.0), expected, tolerance("logits", dtype), "logits")


def test_query_scale_is_one_below_the_floor_and_grows_above():
    positions = torch.tensor([0, 127_998, 127_999, 128_000, 262_143])
    tau = ops.query_scale(positions, 128_000, 0.1)
    assert tau[:3].tolist() == [1.0, 1.0, 1.0] and tau[3] > 1.0
    expected = 1 + 0.1 * torch.log(torch.tensor(262_144 / 128_000, dtype=torch.float64))
    assert abs(float(tau[4]) - float(expected)) < 1e-6
