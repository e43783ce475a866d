"""inkling_hpu.ops beside attention: every op equals its namesake in inkling_core.ops, odd sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inkling_core import ops as law
from inkling_core.ops import QkvrWeights
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_hpu import ops

DTYPES = [pytest.param(torch.float32, id="f32"), pytest.param(torch.bfloat16, id="bf16")]
ROWS = [
    pytest.param(*rows, id="Q{}-S{}".format(*rows))
    for rows in ((1, 1), (3, 1), (16, 1), (1, 5), (1, 63), (2, 129), (1, 1000))
]


@pytest.fixture
def normal():
    generator = torch.Generator().manual_seed(7)
    return lambda *shape: torch.randn(shape, generator=generator)


def check(op: str, actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert_within(actual, expected, tolerance(op, expected.dtype), op)


def starts_of(rows: int, length: int) -> tuple[int, ...]:
    return tuple(range(0, rows * length + 1, length))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("taps", [2, 3, 4, 7], ids=lambda w: f"W{w}")
@pytest.mark.parametrize(("rows", "length"), ROWS)
def test_short_conv(normal, rows, length, taps, dtype):
    x, past = normal(rows * length, 24).to(dtype), normal(rows, taps - 1, 24).to(dtype)
    arguments = (x, past, normal(24, taps), starts_of(rows, length))
    check("short_conv", ops.short_conv(*arguments), law.short_conv(*arguments))


@pytest.mark.parametrize("length", [1, 5])
def test_short_conv_leaves_its_inputs_alone(normal, length):
    x, past, weight = normal(2 * length, 8), normal(2, 3, 8), normal(8, 4)
    before = [tensor.clone() for tensor in (x, past, weight)]
    out = ops.short_conv(x, past, weight, starts_of(2, length))
    out.fill_(float("nan"))
    for tensor, was in zip((x, past, weight), before, strict=True):
        assert torch.equal(tensor, was)


@pytest.mark.parametrize("starts", [(0, 2, 5), (0, 3, 6), (0, 5)], ids=str)
def test_short_conv_refuses_ragged_rows(normal, starts):
    with pytest.raises(ValueError, match="rows of one length"):
        ops.short_conv(normal(7, 4), normal(len(starts) - 1, 3, 4), normal(4, 4), starts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [True, False], ids=["global", "local"])
@pytest.mark.parametrize(("rows", "length"), ROWS[:5])
def test_qkvr_prep(normal, rows, length, tau, dtype):
    total = rows * length
    weights = QkvrWeights(
        normal(32, 4), normal(32, 4), normal(16).to(dtype), normal(16).to(dtype),
        normal(8, 40).to(dtype),
    )  # fmt: skip
    inputs = [normal(total, width).to(dtype) for width in (64, 32, 32, 32)]
    pasts = [normal(rows, 3, 32).to(dtype) for _ in range(2)]
    tau_T = 1 + normal(total).abs() if tau else None
    arguments = (*inputs, weights, *pasts, starts_of(rows, length), tau_T, 1e-6)
    for actual, expected in zip(ops.qkvr_prep(*arguments), law.qkvr_prep(*arguments), strict=True):
        check("qkvr_prep", actual, expected)


def test_query_scale():
    positions = torch.tensor([0, 1, 22, 23, 24, 127_999, 128_000, 262_143])
    assert torch.equal(ops.query_scale(positions, 24, 0.1), law.query_scale(positions, 24, 0.1))
    assert ops.query_scale(positions, 128_000, 0.1)[-1] > 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 3, 63, 129], ids=lambda t: f"T{t}")
@pytest.mark.parametrize(("experts", "chosen", "shared"), [(8, 3, 2), (256, 6, 2), (7, 7, 1)])
def test_router(normal, tokens, experts, chosen, shared, dtype):
    arguments = (
        normal(tokens, 64).to(dtype),
        normal(experts + shared, 64).to(dtype) / 8,
        normal(experts) * 0.1,
        normal(1).abs() + 0.5,
        chosen,
        shared,
        8.0,
    )
    actual, expected = ops.router(*arguments), law.router(*arguments)
    assert torch.equal(actual[0], expected[0])
    check("router", actual[1], expected[1])
    check("router", actual[2], expected[2])


def test_router_weights_stay_finite_where_every_sigmoid_vanishes():
    weight = torch.full((6, 4), -60.0)
    weights = ops.router(torch.ones(1, 4), weight, torch.arange(4.0), torch.ones(1), 2, 2, 1.0)
    torch.testing.assert_close(torch.cat(weights[1:], dim=1), torch.full((1, 4), 0.25))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "published"])
@pytest.mark.parametrize("tokens", [1, 5, 129], ids=lambda t: f"T{t}")
def test_experts(normal, tokens, packed, dtype):
    x, w13, w2 = normal(tokens, 48).to(dtype), normal(9, 66, 48) / 7, normal(9, 48, 33) / 6
    weights = [w13.to(dtype), w2.to(dtype)]
    ids = torch.stack([torch.randperm(9)[:3] for _ in range(tokens)])
    scale = normal(tokens, 3).abs().to(dtype)
    expected = law.experts(x, ids, scale, *weights)
    ours = ops.pack_experts(*weights) if packed else weights
    check("experts", ops.experts(x, ids, scale, *ours), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "published"])
@pytest.mark.parametrize("shared", [1, 2, 3], ids=lambda s: f"shared-{s}")
@pytest.mark.parametrize("tokens", [1, 5, 129], ids=lambda t: f"T{t}")
def test_shared_experts(normal, tokens, shared, packed, dtype):
    x = normal(tokens, 48).to(dtype)
    weights = [(normal(shared, 66, 48) / 7).to(dtype), (normal(shared, 48, 33) / 6).to(dtype)]
    gamma = normal(tokens, shared).abs().to(dtype)
    expected = law.shared_experts(x, gamma, *weights)
    ours = ops.pack_experts(*weights) if packed else weights
    check("shared_experts", ops.shared_experts(x, gamma, *ours), expected)


def test_packed_experts_are_gate_rows_then_up_rows():
    w13 = torch.arange(12.0).view(1, 6, 2)
    packed, w2 = ops.pack_experts(w13, torch.zeros(1, 2, 3))
    assert packed.flatten(1, 2)[0, :, 0].tolist() == [0, 4, 8, 2, 6, 10]
    assert w2.shape == (1, 2, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 63, 128, 1000], ids=lambda d: f"D{d}")
def test_norm_activation_and_head(normal, width, dtype):
    x, weight = normal(5, width).to(dtype), normal(width).to(dtype)
    check("rms_norm", ops.rms_norm(x, weight, 1e-6), law.rms_norm(x, weight, 1e-6))
    check("rms_norm", ops.rms_norm(x, None, 1e-6), law.rms_norm(x, None, 1e-6))
    gate_up = normal(5, 2 * width).to(dtype)
    check("silu_and_mul", ops.silu_and_mul(gate_up), law.silu_and_mul(gate_up))
    head = (normal(7, width) / width**0.5).to(dtype)
    check("logits", ops.logits(x, head, 4.0), law.logits(x, head, 4.0))
