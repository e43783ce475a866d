"""router: choice by biased sigmoid, weights without the bias, shared experts as a sink."""

import pytest
import torch

from inkling_core.ops import router


def routed(x, weight, bias, k=2, shared=1, scale=4.0, global_scale=1.0):
    return router(x, weight, bias, torch.tensor([global_scale]), k, shared, scale)


@pytest.mark.parametrize("tokens", [1, 3, 63, 129])
def test_weights_sum_to_the_scale(tokens):
    draw = torch.Generator().manual_seed(tokens)
    x, weight = torch.randn(tokens, 16, generator=draw), torch.randn(9, 16, generator=draw)
    ids, weights, gamma = routed(x, weight, torch.randn(8, generator=draw), global_scale=1.5)
    total = weights.sum(-1) + gamma.sum(-1)
    assert torch.allclose(total, torch.full((tokens,), 6.0), atol=1e-5)
    assert ids.shape == (tokens, 2) and int(ids.max()) < 8


def test_bias_chooses_and_does_not_weigh():
    x = torch.ones(1, 1)
    weight = torch.tensor([[1.0], [0.5], [0.0], [2.0]])  # the last row is shared
    ids, weights, _ = routed(x, weight, torch.tensor([0.0, 0.0, 10.0]))
    assert ids.tolist() == [[2, 0]]
    sigmoids = torch.sigmoid(torch.tensor([0.0, 1.0, 2.0]))
    assert torch.allclose(weights[0], 4 * sigmoids[:2] / sigmoids.sum(), atol=1e-6)


def test_ties_go_to_the_lowest_index():
    ids, _, _ = routed(torch.ones(3, 1), torch.zeros(40, 1), torch.zeros(39), k=5)
    assert ids.tolist() == [[0, 1, 2, 3, 4]] * 3


def test_routing_is_float32_whatever_the_model_dtype():
    """Two experts whose logits differ by less than bfloat16 can tell must not tie."""
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    weight = torch.tensor([[1.0, 0.0], [1.0, 2**-12], [0.0, 0.0]])
    ids, weights, _ = routed(x, weight, torch.zeros(2), k=1)
    assert ids.tolist() == [[1]] and weights.dtype == torch.bfloat16
