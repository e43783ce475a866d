"""Attention inputs from raw projections; law: `inkling_core.ops.qkvr_prep`.

Not the projections and not attention. Everything happens in one launch (`prep_kernel`); tau has one
of its own, since it is made once per step.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_core.ops import QkvrWeights
from inkling_cuda_ref.prep_kernel import prepared_into
from inkling_cuda_ref.storage import launch, stored, tile


@triton.jit
def _scale_kernel(
    positions_ptr, out_ptr, total, n_floor, alpha, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    position = tl.load(positions_ptr + index, mask=index < total, other=0)
    effective = (position + 1).to(tl.float32) / n_floor
    tau = 1.0 + alpha * tl.log(tl.maximum(effective, 1.0))
    tl.store(out_ptr + index, stored(tau, tl.float32, WIDE), mask=index < total)


def query_scale(positions_T: Tensor, n_floor: int, alpha: float) -> Tensor:
    """See `inkling_core.ops.query_scale`: same arguments, same result."""
    total = positions_T.numel()
    out_T = torch.empty_like(positions_T, dtype=torch.float32)
    block = tile(total, 1024, 1 << 16)
    grid = (triton.cdiv(total, block),)
    launch(_scale_kernel, grid, positions_T, out_T, total, n_floor, alpha, BLOCK=block)
    return out_T


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
    shape = (k_TC.shape[0], 1, -1, weights.q_norm_H.shape[0])
    k_T1GH, v_T1GH = (torch.empty_like(x).view(shape) for x in (k_TC, v_TC))
    q_TNH, rel_TNR = prepared_into(
        k_T1GH, v_T1GH, None, q_TC, k_TC, v_TC, r_TC, weights,
        k_history_QJC, v_history_QJC, starts, tau_T, eps,
    )  # fmt: skip
    return q_TNH, k_T1GH[:, 0], v_T1GH[:, 0], rel_TNR
