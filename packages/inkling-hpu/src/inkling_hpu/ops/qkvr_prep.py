"""From raw projections to attention inputs, with this folder's norm and convolution.

Law: `inkling_core.ops.qkvr_prep`, whose order of steps this keeps. Not fused.
"""

from collections.abc import Sequence

from torch import Tensor

from inkling_core import ops as law
from inkling_core.ops import QkvrWeights
from inkling_hpu.ops.norm import rms_norm
from inkling_hpu.ops.short_conv import short_conv


def query_scale(positions_T: Tensor, n_floor: int, alpha: float) -> Tensor:
    """See `inkling_core.ops.query_scale`: same arguments, same result."""
    return law.query_scale(positions_T, n_floor, alpha)


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
    """See `inkling_core.ops.qkvr_prep`: same arguments, same result."""
    head_dim, rel_dim = weights.q_norm_H.shape[0], weights.rel_proj_UR.shape[0]
    k_TC = short_conv(k_TC, k_history_QJC, weights.k_conv_CW, starts)
    v_TC = short_conv(v_TC, v_history_QJC, weights.v_conv_CW, starts)
    q_TNH = rms_norm(q_TC.unflatten(-1, (-1, head_dim)), weights.q_norm_H, eps)
    k_TGH = rms_norm(k_TC.unflatten(-1, (-1, head_dim)), weights.k_norm_H, eps)
    rel_TNR = r_TC.unflatten(-1, (-1, rel_dim)) @ weights.rel_proj_UR
    if tau_T is not None:
        tau_T11 = tau_T[:, None, None]
        q_TNH = (q_TNH * tau_T11).to(q_TNH.dtype)  # float32 by promotion
        rel_TNR = (rel_TNR * tau_T11).to(rel_TNR.dtype)
    return q_TNH, k_TGH, v_TC.unflatten(-1, (-1, head_dim)), rel_TNR
