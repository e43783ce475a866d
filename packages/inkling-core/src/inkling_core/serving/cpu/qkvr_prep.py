"""Attention inputs from raw projections, with this folder's norm and convolution.

Law: `inkling_core.ops.qkvr_prep`. Not fused; what it saves is the loop over requests inside the
convolutions and, on global layers, the scaling where every position is below the floor.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from inkling_core.ops.qkvr_prep import QkvrWeights, prepared_by
from inkling_core.serving.cpu.norm import rms_norm
from inkling_core.serving.cpu.short_conv import short_conv


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
    if tau_T is not None and bool((tau_T == 1).all()):
        tau_T = None
    return prepared_by(
        rms_norm, short_conv, q_TC, k_TC, v_TC, r_TC, weights,
        k_history_QJC, v_history_QJC, starts, tau_T, eps,
    )  # fmt: skip
