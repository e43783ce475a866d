"""qkvr_prep against the core: histories, padding, tau, odd heads; and its paged form."""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, ragged_starts, sizes

from inkling_core import ops as law
from inkling_core.ops import QkvrWeights
from inkling_cuda_ref import ops

EPS = 1e-6


def arguments(draw, starts, total, *, heads=6, kv_heads=3, width=10, rel_dim=5, extent=33):
    """Random projections, weights and histories; padding rows are NaN."""
    weights = QkvrWeights(
        draw(kv_heads * width, 4, dtype=torch.float32),
        draw(kv_heads * width, 4, dtype=torch.float32),
        draw(width),
        draw(width),
        draw(rel_dim, extent),
    )
    projections = [
        draw(total, n * w)
        for n, w in ((heads, width), (kv_heads, width), (kv_heads, width), (heads, rel_dim))
    ]
    for projection in projections:
        projection[starts[-1] :] = float("nan")
    requests = len(starts) - 1
    histories = [draw(requests, 3, kv_heads * width) for _ in range(2)]
    return (*projections, weights, *histories, starts)


@dtypes()
@sizes()
@pytest.mark.parametrize("scaled", [True, False], ids=["tau", "no-tau"])
def test_qkvr_prep(size, dtype, scaled):
    padding = min(2, size - 1)
    starts = ragged_starts(size, 1 + size % 8, padding)
    given = arguments(Draw(dtype, size), starts, size)
    tau_T = None
    if scaled:
        tau_T = 1.0 + 0.3 * torch.rand(size, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    actual = ops.qkvr_prep(*given, tau_T, EPS)
    expected = law.qkvr_prep(*given, tau_T, EPS)
    for name, a, e in zip(("queries", "keys", "values", "relative"), actual, expected, strict=True):
        real = size - padding
        hold("qkvr_prep", a[:real], e[:real], name)
        if name in ("keys", "values"):  # padding is written to the null block: it has to be clean
            assert not a[real:].any() and not e[real:].any()


@dtypes()
@pytest.mark.parametrize("requests", range(1, 9), ids=lambda n: f"Q{n}")
def test_decode_of_ragged_batches(requests, dtype):
    """One token per request: three of four taps come from the histories."""
    starts = tuple(range(requests + 1))
    given = arguments(Draw(dtype, requests), starts, requests, heads=8, kv_heads=1, width=16)
    for a, e in zip(
        ops.qkvr_prep(*given, None, EPS), law.qkvr_prep(*given, None, EPS), strict=True
    ):
        hold("qkvr_prep", a, e, "decode")
