"""Routed and shared experts.

Not the router. Both use the interleaved `w13` layout; they differ in where the weight goes:

    routed:  y = sum_k  weight_k * w2(silu(gate) * up)      weight after w2, sum in model dtype
    shared:  y = sum_s  w2(gamma_s * silu(gate) * up)       gamma before w2, sum in float32

A back end may keep the weights in a layout of its kernel's; `pack_experts` makes it, once, after
loading, and its `experts` and `shared_experts` read it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_core.ops.activation import silu_and_mul


def pack_experts(w13_ECD: Tensor, w2_EDI: Tensor) -> tuple[Tensor, Tensor]:
    """The weights as this back end's expert ops read them; here as published, nothing copied.

    Args:
        w13_ECD: `[E, 2I, D]`, rows interleaved.
        w2_EDI: `[E, D, I]`.
    """
    return w13_ECD, w2_EDI


def experts(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    """Weighted sum of each token's chosen experts.

    Args:
        x_TD: normalised hidden states.
        ids_TK: chosen experts.
        weights_TK: their weights, in the dtype of `x_TD`.
        w13_ECD: `[E, 2I, D]`, rows interleaved.
        w2_EDI: `[E, D, I]`.

    Returns:
        `[T, D]` in the dtype of `x_TD`.
    """
    out_TD = torch.zeros_like(x_TD)
    for expert in ids_TK.unique().tolist():
        token, choice = torch.where(ids_TK == expert)
        hidden = silu_and_mul(F.linear(x_TD[token], w13_ECD[expert]))
        hidden = F.linear(hidden, w2_EDI[expert]) * weights_TK[token, choice, None]
        out_TD.index_add_(0, token, hidden.to(x_TD.dtype))
    return out_TD


def shared_experts(x_TD: Tensor, gamma_TS: Tensor, w13_SCD: Tensor, w2_SDI: Tensor) -> Tensor:
    """Sum of the always-on experts.

    Args:
        x_TD: normalised hidden states.
        gamma_TS: weight of each shared expert (S = shared experts).
        w13_SCD: `[S, 2I, D]`, rows interleaved.
        w2_SDI: `[S, D, I]`.

    Returns:
        `[T, D]` in the dtype of `x_TD`.
    """
    hidden_STI = silu_and_mul(x_TD @ w13_SCD.transpose(1, 2)) * gamma_TS.T[:, :, None]
    return (hidden_STI @ w2_SDI.transpose(1, 2)).float().sum(0).to(x_TD.dtype)
