"""norm, activation, short_conv, query_scale and logits against their namesakes in the core."""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, ragged_starts, sizes

from inkling_core import ops as law
from inkling_cuda_ref import ops


@dtypes()
@sizes()
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "plain"])
def test_rms_norm(size, dtype, weighted):
    draw = Draw(dtype, size)
    weight = draw(size) if weighted else None
    for x in (draw(3, 5, size, scale=3.0), draw(size, 63, scale=1e-3)):
        side = weight if x.shape[-1] == size or weight is None else draw(63)
        hold("rms_norm", ops.rms_norm(x, side, 1e-6), law.rms_norm(x, side, 1e-6), "rms_norm")


@dtypes()
@sizes()
def test_silu_and_mul(size, dtype):
    gate_up = Draw(dtype, size)(size, 2 * 63, scale=3.0)
    hold("silu_and_mul", ops.silu_and_mul(gate_up), law.silu_and_mul(gate_up), "silu_and_mul")


@dtypes()
@sizes()
@pytest.mark.parametrize("taps", [2, 4])
def test_short_conv(size, dtype, taps):
    draw = Draw(dtype, size)
    padding = min(3, size - 1)
    starts = ragged_starts(size, 5, padding)
    x_TC = draw(size, 37)
    x_TC[size - padding :] = float("nan")
    # rows of the store may be wider than the activations
    history_QJC = draw(len(starts) - 1, taps - 1, 37, dtype=torch.float32)
    weight_CW = draw(37, taps, dtype=torch.float32)
    arguments = (x_TC, history_QJC, weight_CW, starts)
    hold("short_conv", ops.short_conv(*arguments), law.short_conv(*arguments), "short_conv")


@dtypes()
@pytest.mark.parametrize("requests", range(1, 9), ids=lambda n: f"Q{n}")
def test_short_conv_over_ragged_batches(requests, dtype):
    """Requests of one to many tokens, some shorter than the history."""
    draw = Draw(dtype, requests)
    starts = ragged_starts(11 * requests, requests)
    x_TC, history_QJC = draw(starts[-1], 20), draw(requests, 3, 20)
    arguments = (x_TC, history_QJC, draw(20, 4, dtype=torch.float32), starts)
    hold("short_conv", ops.short_conv(*arguments), law.short_conv(*arguments), "short_conv")


def test_taps_are_read_oldest_first():
    """By hand: a lone one at t is seen by t .. t + 3 through taps 3, 2, 1, 0."""
    x_TC = torch.zeros(6, 1, device=DEVICE)
    x_TC[1] = 1.0
    weight_CW = torch.tensor([[0.1, 0.2, 0.3, 0.4]], device=DEVICE)
    history_QJC = torch.zeros(1, 3, 1, device=DEVICE)
    y = ops.short_conv(x_TC, history_QJC, weight_CW, (0, 6)).flatten()
    assert y.tolist() == pytest.approx([0.0, 1.4, 0.3, 0.2, 0.1, 0.0])


@sizes()
def test_query_scale(size):
    positions_T = torch.arange(size, device=DEVICE) * 977 % 262_144
    actual = ops.query_scale(positions_T, 160, 0.1)
    hold("query_scale", actual, law.query_scale(positions_T, 160, 0.1), "query_scale")


@dtypes()
@sizes()
def test_logits(size, dtype):
    draw = Draw(dtype, size)
    x_TD, unembed_VD = draw(size, 37), draw(131, 37, scale=0.2)
    hold("logits", ops.logits(x_TD, unembed_VD, 3.0), law.logits(x_TD, unembed_VD, 3.0), "logits")
