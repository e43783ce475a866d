"""qkvr_prep against its steps in float64, head by head; the log-scaling factor."""

import pytest
import torch
from op_inputs import DTYPES, random

from inkling_core import ops
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance

HEADS, KV_HEADS, DIM, REL, EXTENT, EPS = 4, 2, 8, 3, 5, 1e-6


def normed(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def convolved(x, history, weight):
    """One request, loop over its tokens."""
    padded, taps = torch.cat([history, x]), weight.shape[1]
    return torch.stack([x[t] + (padded[t : t + taps] * weight.T).sum(0) for t in range(len(x))])


@DTYPES
@pytest.mark.parametrize("scaled", [False, True], ids=["local", "global"])
@pytest.mark.parametrize("length", [1, 3, 63])
def test_qkvr_prep(length, scaled, dtype):
    kv = KV_HEADS * DIM
    widths = {"q": HEADS * DIM, "k": kv, "v": kv, "r": HEADS * REL}
    raw = [random(length, width, dtype=dtype, seed=n) for n, width in enumerate(widths.values())]
    k_past, v_past = (random(1, 3, kv, dtype=dtype, seed=n) for n in (4, 5))
    weights = ops.QkvrWeights(
        *(random(kv, 4, seed=n) for n in (6, 7)),
        *(random(DIM, dtype=dtype, seed=n) for n in (8, 9)),
        random(REL, EXTENT, dtype=dtype, seed=10),
    )
    tau = 1 + 0.3 * random(length, seed=11).abs() if scaled else None
    actual = ops.qkvr_prep(*raw, weights, k_past, v_past, [0, length], tau, EPS)

    q, k, v, r = (x.double() for x in raw)
    k_conv, v_conv, q_norm, k_norm, proj = (w.double() for w in weights)
    scale = 1.0 if tau is None else tau.double()[:, None]
    k, v = convolved(k, k_past[0].double(), k_conv), convolved(v, v_past[0].double(), v_conv)
    for n in range(HEADS):
        q_n, r_n = q[:, n * DIM : (n + 1) * DIM], r[:, n * REL : (n + 1) * REL]
        held(actual[0][:, n], normed(q_n, q_norm) * scale, dtype, f"q of head {n}")
        held(actual[3][:, n], (r_n @ proj) * scale, dtype, f"rel of head {n}")
    for g in range(KV_HEADS):
        channels = slice(g * DIM, (g + 1) * DIM)
        held(actual[1][:, g], normed(k[:, channels], k_norm), dtype, f"k of head {g}")
        held(actual[2][:, g], v[:, channels], dtype, f"v of head {g}")


def held(actual, expected, dtype, what):
    assert_within(actual, expected, tolerance("qkvr_prep", dtype), what)


def test_query_scale_is_one_below_the_floor_and_grows_above():
    positions = torch.tensor([0, 127_998, 127_999, 128_000, 262_143])
    tau = ops.query_scale(positions, 128_000, 0.1)
    assert tau[:3].tolist() == [1.0, 1.0, 1.0] and tau[3] > 1.0
    expected = 1 + 0.1 * torch.log(torch.tensor(262_144 / 128_000, dtype=torch.float64))
    assert abs(float(tau[4]) - float(expected)) < 1e-6
