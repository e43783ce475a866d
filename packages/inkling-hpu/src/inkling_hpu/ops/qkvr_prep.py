"""From raw projections to attention inputs, with this folder's norm and convolution.

Law: `inkling_core.ops.qkvr_prep`. Not fused.
"""

from collections.abc import Sequence

from torch import Tensor

from inkling_core import ops as law
from inkling_core.ops.qkvr_prep import QkvrWeights, prepared_by
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
    return prepared_by(
        rms_norm, short_conv, q_TC, k_TC, v_TC, r_TC, weights,
        k_history_QJC, v_history_QJC, starts, tau_T, eps,
    )  # fmt: skip
