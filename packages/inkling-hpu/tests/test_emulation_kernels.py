"""The expert kernel and the fused norm against inkling_core's definitions of the same things."""

import pytest
import torch

from inkling_core.ops.experts import experts
from inkling_core.ops.norm import rms_norm
from inkling_hpu.emulation.expert_kernel import mixture_of_experts
from inkling_hpu.emulation.kernels import (
    FusedRMSNorm,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)

WIDTH, INNER, EXPERTS = 24, 10, 7


def case(tokens, chosen, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x_TD = torch.randn(tokens, WIDTH, generator=generator)
    order = torch.rand(tokens, EXPERTS, generator=generator).argsort(-1)
    weights_TK = torch.rand(tokens, chosen, generator=generator)
    w13_ECD = torch.randn(EXPERTS, 2 * INNER, WIDTH, generator=generator) / 5
    w2_EDI = torch.randn(EXPERTS, WIDTH, INNER, generator=generator) / 3
    return x_TD, order[:, :chosen], weights_TK, w13_ECD, w2_EDI


def concatenated(w13_ECD):
    """Rows gate, up, gate, up, ... as gate ..., up ..., one tensor per expert."""
    return [torch.cat([rows[0::2], rows[1::2]]) for rows in w13_ECD]


def run(x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI, first=0, last=EXPERTS - 1, activation="silu"):
    w12, w3 = concatenated(w13_ECD)[first : last + 1], list(w2_EDI)[first : last + 1]
    return mixture_of_experts(x_TD, ids_TK, weights_TK, w12, w3, True, activation, first, last)


@pytest.mark.parametrize("tokens", [1, 3, 63, 129])
@pytest.mark.parametrize("chosen", [1, 2, 6])
def test_equals_the_definition_on_separated_rows(tokens, chosen):
    arguments = case(tokens, chosen)
    assert torch.allclose(run(*arguments), experts(*arguments), atol=1e-5)


def test_interleaved_rows_would_be_another_model():
    x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI = case(5, 2)
    wrong = mixture_of_experts(
        x_TD, ids_TK, weights_TK, list(w13_ECD), list(w2_EDI), True, "silu", 0, EXPERTS - 1
    )
    assert (wrong - experts(x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI)).abs().max() > 0.1


def test_ranks_add_up_to_the_whole():
    arguments = case(9, 3)
    parts = run(*arguments, first=0, last=3) + run(*arguments, first=4, last=EXPERTS - 1)
    assert torch.allclose(parts, run(*arguments), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": torch.int32}, "torch.int64"),
        ({"weights": torch.bfloat16}, "router_weights"),
        ({"last": EXPERTS - 2}, "experts 0..5"),
        ({"activation": "swiglu"}, "swiglu"),
    ],
    ids=["ids", "weights", "range", "activation"],
)
def test_refuses_what_the_kernel_refuses(change, message):
    x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI = case(3, 2)
    with pytest.raises(ValueError, match=message):
        mixture_of_experts(
            x_TD,
            ids_TK.to(change.get("ids", torch.int64)),
            weights_TK.to(change.get("weights", torch.float32)),
            concatenated(w13_ECD),
            list(w2_EDI),
            True,
            change.get("activation", "silu"),
            0,
            change.get("last", EXPERTS - 1),
        )


@pytest.mark.parametrize("shape", [(1, 5), (3, 7, 127), (2, 1, 128)])
def test_norm_equals_the_definition(shape):
    x, weight = torch.randn(shape), torch.randn(shape[-1])
    assert torch.allclose(FusedRMSNorm.apply(x, weight, 1e-6), rms_norm(x, weight, 1e-6), atol=1e-6)


@pytest.mark.parametrize("mode", list(RotaryPosEmbeddingMode))
def test_rotary_turns_each_pair_by_its_angle(mode):
    x = torch.randn(3, 2, 8)
    angle = torch.rand(3, 4) * 6
    if mode is RotaryPosEmbeddingMode.BLOCKWISE:
        spread = torch.cat([angle, angle], -1)
        pairs = [(at, at + 4) for at in range(4)]
    else:
        spread = angle.repeat_interleave(2, -1)
        pairs = [(2 * at, 2 * at + 1) for at in range(4)]
    turned = apply_rotary_pos_emb(x, spread.cos()[:, None], spread.sin()[:, None], None, 0, mode)
    for number, (first, second) in enumerate(pairs):
        want = torch.view_as_complex(torch.stack([x[..., first], x[..., second]], -1))
        want = want * torch.polar(torch.ones(3, 1), angle[:, number, None])
        got = torch.view_as_complex(torch.stack([turned[..., first], turned[..., second]], -1))
        assert torch.allclose(got, want, atol=1e-6)
