"""rel_attention against a plain double loop in float64.

score(p, s) = (q_p . k_s) / H + (rel_p[p - s] if p - s < R else 0),   0 <= p - s < window
"""

import math

import pytest
import torch

from inkling_core.ops import rel_attention
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.step import Step

HEADS, KV_HEADS, DIM = 4, 2, 8


def naive(q, rel, k, v, first_query: int, window: int | None) -> torch.Tensor:
    """One request, loops over tokens and heads, float64."""
    q, rel, k, v = (t.double() for t in (q, rel, k, v))
    out = torch.zeros_like(q)
    for t in range(q.shape[0]):
        position = first_query + t
        keys = [s for s in range(position + 1) if window is None or position - s < window]
        for n in range(q.shape[1]):
            g = n // (q.shape[1] // k.shape[1])
            scores = [
                float(q[t, n] @ k[s, g]) / DIM
                + (float(rel[t, n, position - s]) if position - s < rel.shape[-1] else 0.0)
                for s in keys
            ]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            for weight, s in zip(weights, keys, strict=True):
                out[t, n] += weight / sum(weights) * v[s, g]
    return out


def paged(keys: torch.Tensor, table: list[int], num_blocks: int, block: int) -> torch.Tensor:
    """Scatters `[S, G, H]` into NaN-filled pages by a block table."""
    pages = torch.full((num_blocks, block, *keys.shape[1:]), float("nan"), dtype=keys.dtype)
    for s in range(keys.shape[0]):
        pages[table[s // block], s % block] = keys[s]
    return pages


@pytest.mark.parametrize("window", [None, 1, 5, 16], ids=lambda w: f"W{w}")
@pytest.mark.parametrize("context,count", [(0, 1), (0, 19), (7, 5), (16, 1), (33, 3), (15, 2)])
@pytest.mark.parametrize("extent", [3, 9, 64], ids=lambda r: f"R{r}")
def test_one_request(window, context, count, extent, poisoned_empty):
    draw = torch.Generator().manual_seed(count * 100 + context)
    length = context + count
    q = torch.randn(count, HEADS, DIM, generator=draw)
    rel = torch.randn(count, HEADS, extent, generator=draw)
    k, v = (torch.randn(length, KV_HEADS, DIM, generator=draw) for _ in range(2))
    table = [5, 2, 7, 1, 6, 3, 4][: -(-length // 8)]
    step = Step.single(count, context, table, 8)
    actual = rel_attention(q, rel, paged(k, table, 8, 8), paged(v, table, 8, 8), step, window)
    expected = naive(q, rel, k, v, context, window)
    assert_within(actual, expected, tolerance("rel_attention", torch.float32), "one request")


def test_window_edge_is_exact():
    """At every position around a block edge the visible keys are exactly the last `window`."""
    window, block = 512, 128
    for position in (510, 511, 512, 513, 639, 640, 641, 1023):
        length = position + 1
        table = list(range(1, 1 + -(-length // block)))
        k = torch.zeros(length, 1, length)
        v = torch.eye(length)[:, None, :]
        step = Step.single(1, position, table, block)
        pages_k = paged(k, table, len(table) + 1, block)
        pages_v = paged(v, table, len(table) + 1, block)
        q, rel = torch.zeros(1, 1, length), torch.zeros(1, 1, 4)
        out = rel_attention(q, rel, pages_k, pages_v, step, window)
        seen = (out[0, 0] > 0).nonzero().flatten().tolist()
        assert seen == list(range(max(0, position - window + 1), position + 1))


def test_requests_do_not_see_each_other():
    draw = torch.Generator().manual_seed(3)
    k, v = (torch.randn(9, KV_HEADS, DIM, generator=draw) for _ in range(2))
    q = torch.randn(6, HEADS, DIM, generator=draw)
    rel = torch.randn(6, HEADS, 4, generator=draw)
    pages_k, pages_v = paged(k, [2, 4, 1], 5, 3), paged(v, [2, 4, 1], 5, 3)
    both = Step.build([2, 3], [1, 3], [[2], [4, 1]], 3, padded_to=6)
    out = rel_attention(q, rel, pages_k, pages_v, both, None)
    pages_k[2], pages_v[2] = float("nan"), float("nan")
    poisoned = rel_attention(q, rel, pages_k, pages_v, both, None)
    assert torch.isnan(poisoned[:2]).any()
    assert torch.equal(poisoned[2:], out[2:])
    assert torch.equal(out[5], torch.zeros(HEADS, DIM))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_bias_has_an_effect_and_zero_bias_is_plain_attention(dtype):
    draw = torch.Generator().manual_seed(4)
    q = torch.randn(7, HEADS, DIM, generator=draw).to(dtype)
    k, v = (torch.randn(7, HEADS, DIM, generator=draw).to(dtype) for _ in range(2))
    step = Step.single(7, 0, [1], 8)
    pages_k, pages_v = paged(k, [1], 2, 8), paged(v, [1], 2, 8)
    none = rel_attention(q, torch.zeros(7, HEADS, 4).to(dtype), pages_k, pages_v, step, None)
    some = rel_attention(q, torch.ones(7, HEADS, 4).to(dtype), pages_k, pages_v, step, None)
    plain = torch.nn.functional.scaled_dot_product_attention(
        *(t.float().transpose(0, 1) for t in (q, k, v)), is_causal=True, scale=1 / DIM
    ).transpose(0, 1)
    limit = tolerance("rel_attention", dtype)
    assert_within(none, plain, limit, "zero bias")
    assert (some - none).abs().max() > 0.05
