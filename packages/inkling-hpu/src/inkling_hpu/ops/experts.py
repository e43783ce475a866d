"""Routed experts as one kernel, shared experts as two products; law: `inkling_core.ops.experts`.

The kernel is called directly, by no engine's expert layer, so that nothing between it and the sum
over the ranks can reduce a second time.

    packed w13   [E, 2, I, D], gate rows then up rows; told from the published [E, 2I, D] by its
                 shape, and made once, after loading

Not the router.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_hpu import markers


def pack_experts(w13_ECD: Tensor, w2_EDI: Tensor) -> tuple[Tensor, Tensor]:
    """See `inkling_core.ops.pack_experts`: `[E, 2, I, D]` and w2 as it is."""
    return _packed(w13_ECD), w2_EDI


def experts(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    """See `inkling_core.ops.experts`: same arguments (w13 packed or not), same result."""
    return markers.moe(x_TD, ids_TK, weights_TK, _packed(w13_ECD).flatten(1, 2), w2_EDI)


def shared_experts(x_TD: Tensor, gamma_TS: Tensor, w13_SCD: Tensor, w2_SDI: Tensor) -> Tensor:
    """See `inkling_core.ops.shared_experts`: same arguments (w13 packed or not), same result."""
    packed_S2ID = _packed(w13_SCD)
    gate_up = F.linear(x_TD, packed_S2ID.flatten(0, 2)).unflatten(-1, packed_S2ID.shape[:3])
    gate_TSI, up_TSI = gate_up.unbind(2)
    hidden_TSI = F.silu(gate_TSI) * up_TSI * gamma_TS[:, :, None]
    out_STD = hidden_TSI.transpose(0, 1) @ w2_SDI.transpose(1, 2)
    return out_STD.sum(0)  # summed in float32 inside, rounded once, as the law does


def every_expert(
    x_TD: Tensor,
    ids_TK: Tensor,
    weights_TK: Tensor,
    w13_ECD: Tensor,
    w2_EDI: Tensor,
    shared_w13_SCD: Tensor,
    shared_w2_SDI: Tensor,
) -> Tensor:
    """`experts` over routed and shared ones together: the latter have the ids E .. E + S - 1."""
    routed, shared = (_packed(w13).flatten(1, 2) for w13 in (w13_ECD, shared_w13_SCD))
    return markers.moe(x_TD, ids_TK, weights_TK, routed, w2_EDI, shared, shared_w2_SDI)


def _packed(w13: Tensor) -> Tensor:
    """`[E, 2, I, D]` of either layout of w13."""
    return w13 if w13.dim() == 4 else torch.stack([w13[:, 0::2], w13[:, 1::2]], dim=1)
