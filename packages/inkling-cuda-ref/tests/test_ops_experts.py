"""Routed and shared experts against the core: every size, idle experts, one expert for all."""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, sizes

from inkling_core import ops as law
from inkling_cuda_ref import ops


def weights(draw, experts, width=37, hidden=24):
    return draw(experts, 2 * hidden, width, scale=width**-0.5), draw(
        experts, width, hidden, scale=hidden**-0.5
    )


def chosen_ids(tokens: int, experts: int, chosen: int) -> torch.Tensor:
    scores = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(tokens))
    return scores.argsort(dim=1)[:, :chosen].to(DEVICE)


@dtypes()
@sizes()
@pytest.mark.parametrize("experts,chosen", [(7, 3), (24, 1)], ids=["E7-K3", "E24-K1"])
def test_experts(size, dtype, experts, chosen):
    draw = Draw(dtype, size)
    x_TD, ids_TK, weights_TK = draw(size, 37), chosen_ids(size, experts, chosen), draw(size, chosen)
    given = (x_TD, ids_TK, weights_TK, *weights(draw, experts))
    hold("experts", ops.experts(*given), law.experts(*given), "experts")


@dtypes()
def test_one_expert_takes_all(dtype):
    """Its rows fill several tiles, every other expert has none."""
    draw = Draw(dtype, 1)
    ids_TK = torch.full((600, 1), 5, device=DEVICE)
    given = (draw(600, 37), ids_TK, draw(600, 1), *weights(draw, 7))
    hold("experts", ops.experts(*given), law.experts(*given), "experts")


@dtypes()
@sizes()
@pytest.mark.parametrize("shared", [1, 2], ids=lambda s: f"S{s}")
def test_shared_experts(size, dtype, shared):
    draw = Draw(dtype, size)
    given = (draw(size, 37), draw(size, shared), *weights(draw, shared))
    hold("shared_experts", ops.shared_experts(*given), law.shared_experts(*given), "shared")


def test_weights_are_read_as_published():
    published = weights(Draw(torch.float32, 0), 2)
    assert all(a is b for a, b in zip(ops.pack_experts(*published), published, strict=True))
