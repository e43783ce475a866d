"""router against the core: choice exactly, weights within the table, ties to the lowest index."""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, Draw, dtypes, hold, sizes

from inkling_core import ops as law
from inkling_cuda_ref import ops


def arguments(draw, tokens, experts, chosen, shared, width=40):
    bias_E = draw(experts, scale=0.1, dtype=torch.float32)
    scale = torch.tensor([1.3], device=DEVICE)
    gate_ED = draw(experts + shared, width, scale=0.3)
    return draw(tokens, width), gate_ED, bias_E, scale, chosen, shared, 8.0


def clear_rows(given) -> torch.Tensor:
    """Rows whose last chosen and first refused expert are further apart than the sums' rounding."""
    x_TD, gate_ED, bias_E, _, chosen, shared, _ = given
    routed_TE = (x_TD.float() @ gate_ED.float().T)[:, : gate_ED.shape[0] - shared]
    ranked_TE = (routed_TE.sigmoid() + bias_E).sort(dim=1, descending=True).values
    return (ranked_TE[:, :-1] - ranked_TE[:, 1:])[:, :chosen].min(dim=1).values > 1e-5


@dtypes()
@sizes()
@pytest.mark.parametrize(
    "experts,chosen,shared", [(7, 3, 1), (256, 6, 2), (16, 2, 2)], ids=lambda n: str(n)
)
def test_router(size, dtype, experts, chosen, shared):
    given = arguments(Draw(dtype, size), size, experts, chosen, shared)
    ids_TK, weights_TK, gamma_TS = ops.router(*given)
    expected = law.router(*given)
    clear_T = clear_rows(given)
    assert clear_T.float().mean() > 0.9
    assert ids_TK.dtype == torch.int64
    assert torch.equal(ids_TK[clear_T], expected[0][clear_T])
    hold("router", weights_TK[clear_T], expected[1][clear_T], "weights")
    hold("router", gamma_TS[clear_T], expected[2][clear_T], "gamma")


@pytest.mark.parametrize("bias", [0.0, -2.0, 5.0])
def test_ties_go_to_the_lowest_index(bias):
    """Equal rows, equal scores, exactly: every choice is a tie."""
    x_TD = torch.ones(5, 16, device=DEVICE)
    gate_ED = torch.full((11, 16), 0.25, device=DEVICE)
    bias_E = torch.full((9,), bias, device=DEVICE)
    bias_E[7] = bias + 1.0
    scale = torch.ones(1, device=DEVICE)
    ids_TK, weights_TK, _ = ops.router(x_TD, gate_ED, bias_E, scale, 4, 2, 1.0)
    assert ids_TK.tolist() == [[7, 0, 1, 2]] * 5
    assert torch.allclose(weights_TK, torch.full_like(weights_TK, 1 / 6))


def test_far_away_logits_stay_finite():
    """sigmoid underflows at -200, its logarithm does not: the weights still add up."""
    x_TD = torch.full((2, 16), 1.0, device=DEVICE)
    gate_ED = torch.full((6, 16), -12.5, device=DEVICE)
    scale, bias_E = torch.ones(1, device=DEVICE), torch.zeros(5, device=DEVICE)
    given = (x_TD, gate_ED, bias_E, scale, 2, 1, 3.0)
    ids_TK, weights_TK, gamma_TS = ops.router(*given)
    assert ids_TK.tolist() == [[0, 1]] * 2
    hold("router", torch.cat([weights_TK, gamma_TS], 1), torch.ones(2, 3, device=DEVICE), "sum")
    hold("router", weights_TK, law.router(*given)[1], "weights")


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # numpy's word on a row of NaN, our subject
def test_nan_names_real_experts():
    """What a padding row holds must not become an index out of range."""
    given = arguments(Draw(torch.float32, 3), 4, 7, 3, 1)
    given[0][2] = float("nan")
    ids_TK = ops.router(*given)[0]
    assert ids_TK.min() >= 0 and ids_TK.max() < 7
    assert torch.equal(ids_TK, law.router(*given)[0])
