"""joined.py: shared experts inside the expert kernel, beside the ops one after the other."""

from __future__ import annotations

import pytest
import torch

from inkling_core import joined as one_by_one
from inkling_core import ops as law
from inkling_core.joined import ALWAYS, MixtureWeights
from inkling_core.ops.activation import silu_and_mul
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_hpu import markers
from inkling_hpu.backend import HPU, backend
from inkling_hpu.joined import mixture
from inkling_hpu.ops.experts import every_expert
from inkling_hpu.switches import Switches

D, E, S, K, WIDTH = 24, 9, 2, 3, 10
SCALE = 2.5


def weights(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    bias, scale = normal(E).float(), normal(1).float().abs()
    always = torch.full((S,), ALWAYS)
    return MixtureWeights(
        normal(E + S, D), bias, scale, torch.cat([bias, always]), scale * SCALE,
        normal(E, 2 * WIDTH, D) / 5, normal(E, D, WIDTH) / 3,
        normal(S, 2 * WIDTH, D) / 5, normal(S, D, WIDTH) / 3,
    )  # fmt: skip


def inputs(tokens, dtype=torch.float32):
    return torch.randn(tokens, D, generator=torch.Generator().manual_seed(tokens)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 3, 5, 63])
def test_one_kernel_is_the_law(tokens, dtype):
    given = (inputs(tokens, dtype), weights(dtype), K, S, SCALE)
    (actual,) = mixture(*given)
    parts = one_by_one.mixture(law.router, law.experts, law.shared_experts, *given)
    expected = (parts[0].float() + parts[1].float()).to(dtype)
    assert_within(actual, expected, tolerance("experts", dtype), "mixture")


def test_every_token_chooses_all_shared_and_the_routers_own_experts(monkeypatch):
    seen = []
    monkeypatch.setitem(
        markers.kernels, "moe", lambda x, ids, *_: (seen.append(ids), torch.zeros_like(x))[1]
    )
    x_TD, given = inputs(63), weights()
    mixture(x_TD, given, K, S, SCALE)
    ids_TK, _, _ = law.router(x_TD, given.gate_ED, given.bias_E, given.global_scale, K, S, SCALE)
    shared = torch.arange(E, E + S).expand(63, S)
    expected = torch.cat([ids_TK, shared], dim=1).sort(dim=1).values
    assert torch.equal(seen[0].sort(dim=1).values, expected)


def test_shared_experts_as_ids_are_exact_in_float64():
    """Within 1e-12 of the two ops: where the weight of a shared expert stands is rounding alone."""
    given, x_TD = weights(torch.float64), inputs(63, torch.float64)
    generator = torch.Generator().manual_seed(5)
    chosen_TK = torch.rand(63, E, generator=generator).topk(K).indices
    weights_TX = torch.rand(63, K + S, generator=generator, dtype=torch.float64)
    ids_TX = torch.cat([chosen_TK, torch.arange(E, E + S).expand(63, S)], dim=1)
    actual = every_expert(x_TD, ids_TX, weights_TX, *given[-4:])
    routed = law.experts(x_TD, chosen_TK, weights_TX[:, :K], given.w13, given.w2)
    hidden = silu_and_mul(x_TD @ given.shared_w13.transpose(1, 2))
    hidden = hidden * weights_TX[:, K:].T[:, :, None]
    expected = routed + (hidden @ given.shared_w2.transpose(1, 2)).sum(0)
    assert expected.std() > 0.5
    assert (actual - expected).abs().max() <= 1e-12


def test_the_switch_takes_the_kernel_apart():
    assert backend(Switches()) is HPU
    apart = backend(Switches(shared_in_kernel=False))
    assert set(HPU.joined) - set(apart.joined) == {"mixture"}
