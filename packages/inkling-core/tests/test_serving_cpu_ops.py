"""serving/cpu: every op equals its namesake in inkling_core.ops, odd sizes, poisoned caches."""

from __future__ import annotations

import pytest
import torch

from inkling_core import ops
from inkling_core.ops import QkvrWeights
from inkling_core.serving import cpu
from inkling_core.serving.pages import PageLayout, cut_pages
from inkling_core.step import Step

N, G, H, C, W = 4, 2, 16, 24, 4
BATCHES = {
    "one-token": ([1], [0]),
    "one-prompt-63": ([63], [0]),
    "one-chunk-after-127": ([5], [127]),
    "decode-8": ([1] * 8, [0, 1, 5, 31, 32, 33, 127, 200]),
    "mixed": ([1, 129, 1, 3, 63], [40, 0, 96, 62, 32]),
    "long-1000": ([1000, 1], [0, 999]),
}
DTYPES = {"f32": (torch.float32, 2e-6), "bf16": (torch.bfloat16, 2e-2)}


def steps():
    return [pytest.param(*batch, id=name) for name, batch in BATCHES.items()]


def dtypes():
    return [pytest.param(*case, id=name) for name, case in DTYPES.items()]


def make_step(lengths, contexts, block_size, padded=0):
    """Blocks handed out in an order that no request owns alone."""
    needs = [-(-(a + b) // block_size) for a, b in zip(lengths, contexts, strict=True)]
    ids = (torch.randperm(sum(needs), generator=torch.Generator().manual_seed(3)) + 1).tolist()
    tables, used = [], 0
    for need in needs:
        tables.append(ids[used : used + need])
        used += need
    total = sum(lengths) + padded if padded else None
    return Step.build(lengths, contexts, tables, block_size, padded_to=total), sum(needs) + 1


def poisoned_pages(blocks, block_size, dtype):
    """NaN everywhere: whatever is read without having been written shows."""
    layout = PageLayout(block_size, G, H, dtype, W - 1, 7, dtype)
    pool = torch.full((blocks, layout.page_bytes // dtype.itemsize), float("nan"), dtype=dtype)
    return cut_pages(pool, layout, G)


def fill(paged, step, generator):
    """Random values at every position that a request of the step has, nowhere else."""
    for q, (context, length) in enumerate(zip(step.contexts, step.lengths, strict=True)):
        for position in range(context + length):
            block = int(step.block_table_QM[q, position // step.block_size])
            row = torch.randn(G, H, generator=generator).to(paged.dtype)
            paged[block, position % step.block_size] = row


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
@pytest.mark.parametrize("window", [None, 1, 3, 48], ids=lambda w: f"window-{w}")
@pytest.mark.parametrize("extent", [1, 48, 300], ids=lambda r: f"R{r}")
@pytest.mark.parametrize(("lengths", "contexts"), steps())
def test_rel_attention_over_poisoned_pages(lengths, contexts, extent, window, dtype, limit):
    step, blocks = make_step(lengths, contexts, 32, padded=3)
    generator = torch.Generator().manual_seed(5)
    pages = poisoned_pages(blocks, 32, dtype)
    fill(pages.keys_PLGH, step, generator)
    fill(pages.values_PLGH, step, generator)
    total = len(step.positions_T)
    q_TNH = torch.randn(total, N, H, generator=generator).to(dtype) * 4
    rel_TNR = torch.randn(total, N, extent, generator=generator).to(dtype)
    q_TNH[step.num_tokens :] = float("nan")
    rel_TNR[step.num_tokens :] = float("nan")
    arguments = (q_TNH, rel_TNR, pages.keys_PLGH, pages.values_PLGH, step, window)
    expected = ops.rel_attention(*arguments)
    assert bool(torch.isfinite(expected).all())
    torch.testing.assert_close(cpu.rel_attention(*arguments), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
def test_nan_of_one_request_stays_with_it(dtype, limit):
    step, blocks = make_step([1, 1, 70], [90, 20, 3], 32)
    generator = torch.Generator().manual_seed(5)
    pages = poisoned_pages(blocks, 32, dtype)
    fill(pages.keys_PLGH, step, generator)
    fill(pages.values_PLGH, step, generator)
    pages.values_PLGH[step.block_table_QM[0, 0]] = float("nan")
    q_TNH = torch.randn(72, N, H, generator=generator).to(dtype)
    rel_TNR = torch.randn(72, N, 48, generator=generator).to(dtype)
    out = cpu.rel_attention(q_TNH, rel_TNR, pages.keys_PLGH, pages.values_PLGH, step, None)
    assert bool(out[0].isnan().all())
    assert bool(torch.isfinite(out[1:]).all())


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
@pytest.mark.parametrize(("lengths", "contexts"), steps())
def test_short_conv(lengths, contexts, dtype, limit):
    step, _ = make_step(lengths, contexts, 32, padded=2)
    x_TC = torch.randn(len(step.positions_T), C).to(dtype)
    x_TC[step.num_tokens :] = float("nan")
    history_QJC = torch.randn(step.num_requests, W - 1, C).to(dtype)
    weight_CW = torch.randn(C, W)
    expected = ops.short_conv(x_TC, history_QJC, weight_CW, step.starts)
    actual = cpu.short_conv(x_TC, history_QJC, weight_CW, step.starts)
    torch.testing.assert_close(actual, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(weighted, dtype, limit):
    x = (torch.randn(5, 3, 127) * 3).to(dtype)
    weight = torch.randn(127).to(dtype) if weighted else None
    expected = ops.rms_norm(x, weight, 1e-6)
    torch.testing.assert_close(cpu.rms_norm(x, weight, 1e-6), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
@pytest.mark.parametrize("tau", ["none", "ones", "scaled"])
@pytest.mark.parametrize(("lengths", "contexts"), steps())
def test_qkvr_prep(lengths, contexts, tau, dtype, limit):
    step, _ = make_step(lengths, contexts, 32)
    total, rel_dim, extent = step.num_tokens, 8, 48
    weights = QkvrWeights(
        torch.randn(G * H, W),
        torch.randn(G * H, W),
        torch.randn(H).to(dtype),
        torch.randn(H).to(dtype),
        torch.randn(rel_dim, extent).to(dtype),
    )
    tau_T = {
        "none": None,
        "ones": torch.ones(total),
        "scaled": ops.query_scale(step.positions_T, 20, 0.1),
    }[tau]
    widths = (N * H, G * H, G * H, N * rel_dim)
    raw = [torch.randn(total, width).to(dtype) for width in widths]
    histories = [torch.randn(step.num_requests, W - 1, G * H).to(dtype) for _ in range(2)]
    arguments = (*raw, weights, *histories, step.starts, tau_T, 1e-6)
    for actual, expected in zip(cpu.qkvr_prep(*arguments), ops.qkvr_prep(*arguments), strict=True):
        torch.testing.assert_close(actual, expected, rtol=2 * limit, atol=2 * limit)


@pytest.mark.parametrize(("dtype", "limit"), dtypes())
@pytest.mark.parametrize("tokens", [1, 3, 63, 129])
@pytest.mark.parametrize("chosen", [1, 2, 6])
def test_experts(tokens, chosen, dtype, limit):
    experts, hidden, width = 7, 63, 5
    x_TD = torch.randn(tokens, hidden).to(dtype)
    ids_TK = torch.stack([torch.randperm(experts)[:chosen] for _ in range(tokens)])
    weights_TK = torch.rand(tokens, chosen).to(dtype)
    w13 = (torch.randn(experts, 2 * width, hidden) / hidden**0.5).to(dtype)
    w2 = (torch.randn(experts, hidden, width) / width**0.5).to(dtype)
    expected = ops.experts(x_TD, ids_TK, weights_TK, w13, w2)
    actual = cpu.experts(x_TD, ids_TK, weights_TK, w13, w2)
    torch.testing.assert_close(actual, expected, rtol=2 * limit, atol=2 * limit)


def test_experts_keep_nan_in_its_row():
    x_TD = torch.randn(5, 8)
    x_TD[2] = float("nan")
    ids_TK = torch.tensor([[0, 1]] * 5)
    out = cpu.experts(x_TD, ids_TK, torch.ones(5, 2), torch.randn(2, 6, 8), torch.randn(2, 8, 3))
    assert bool(out[2].isnan().all())
    assert bool(torch.isfinite(out[[0, 1, 3, 4]]).all())
