"""From raw projections to what attention reads: queries, keys, values and relative logits.

Not the projections (layers own them) and not attention. In order:

    k, v   = short_conv(raw k), short_conv(raw v)         on flat channels, before the head split
    q, k   = rms_norm per head, weights shared by heads   v has no norm, q has no convolution
    rel    = r @ proj                                     one logit per backward distance
    global layers: q, rel *= tau(position)                float32, cast back
    tau(p) = 1 + alpha * ln(max((p + 1) / n_floor, 1))
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from inkling_core.ops.norm import rms_norm
from inkling_core.ops.short_conv import short_conv


class QkvrWeights(NamedTuple):
    """Side weights of one attention layer."""

    k_conv_CW: Tensor
    v_conv_CW: Tensor
    q_norm_H: Tensor
    k_norm_H: Tensor
    rel_proj_UR: Tensor


def query_scale(positions_T: Tensor, n_floor: int, alpha: float) -> Tensor:
    """Log-scaling factor tau of each token, `[T]` float32; exactly 1 below `n_floor` positions."""
    effective = (positions_T + 1).float() / n_floor
    return 1.0 + alpha * torch.log(effective.clamp(min=1.0))


def qkvr_prep(
    q_TC: Tensor,
    k_TC: Tensor,
    v_TC: Tensor,
    r_TC: Tensor,
    weights: QkvrWeights,
    k_history_QJC: Tensor,
    v_history_QJC: Tensor,
    starts: Sequence[int],
    tau_T: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prepares one layer's attention inputs for the packed tokens.

    Args:
        q_TC: raw query projection `[T, N * H]`.
        k_TC: raw key projection `[T, G * H]`.
        v_TC: raw value projection `[T, G * H]`.
        r_TC: raw relative projection `[T, N * U]`.
        weights: side weights of the layer; H comes from `q_norm_H`, U from `rel_proj_UR`.
        k_history_QJC: raw key inputs before each request's first token, oldest first.
        v_history_QJC: the same for values.
        starts: Q + 1 packed offsets.
        tau_T: float32 query scale of global layers, None on local ones.
        eps: of the norms.

    Returns:
        `q_TNH, k_TGH, v_TGH, rel_TNR`, all in the dtype of the projections.
    """
    return prepared_by(
        rms_norm, short_conv, q_TC, k_TC, v_TC, r_TC, weights,
        k_history_QJC, v_history_QJC, starts, tau_T, eps,
    )  # fmt: skip


def prepared_by(
    norm: Callable[[Tensor, Tensor, float], Tensor],
    conv: Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor],
    q_TC: Tensor,
    k_TC: Tensor,
    v_TC: Tensor,
    r_TC: Tensor,
    weights: QkvrWeights,
    k_history_QJC: Tensor,
    v_history_QJC: Tensor,
    starts: Sequence[int],
    tau_T: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The steps of `qkvr_prep` with a given `rms_norm` and `short_conv`: for back ends that fuse
    neither, so that the order of steps stands once. Arguments and result: see there."""
    head_dim, rel_dim = weights.q_norm_H.shape[0], weights.rel_proj_UR.shape[0]
    k_TC = conv(k_TC, k_history_QJC, weights.k_conv_CW, starts)
    v_TC = conv(v_TC, v_history_QJC, weights.v_conv_CW, starts)
    q_TNH = norm(q_TC.unflatten(-1, (-1, head_dim)), weights.q_norm_H, eps)
    k_TGH = norm(k_TC.unflatten(-1, (-1, head_dim)), weights.k_norm_H, eps)
    v_TGH = v_TC.unflatten(-1, (-1, head_dim))
    rel_TNR = r_TC.unflatten(-1, (-1, rel_dim)) @ weights.rel_proj_UR
    if tau_T is not None:
        tau_T11 = tau_T[:, None, None]
        q_TNH = (q_TNH * tau_T11).to(q_TNH.dtype)  # tau makes the product float32
        rel_TNR = (rel_TNR * tau_T11).to(rel_TNR.dtype)
    return q_TNH, k_TGH, v_TGH, rel_TNR
