"""Neighbouring steps of a layer that a back end may run as one: here, one op after the other.

Not ops: those take and return what the law defines, so that every back end is held to each of
them. A joined step saves the passes over memory between two of them, changes no result, and is
held to the same ops. The decoder calls these names only; `Backend.bind` takes a back end's own
function where it has one and runs all of its ops, and the bodies below over its ops elsewhere.

    qkvr_prep_and_write   qkvr_prep, then keys and values into their places in the cache
    conv_add_norm         stream += short_conv(delta), then rms_norm of the stream
    mixture               router, then routed and shared experts

Every body takes the ops of `PARTS` first; what is bound takes the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from inkling_core.kv_cache import KVCache
from inkling_core.ops import QkvrWeights

PARTS: Mapping[str, tuple[str, ...]] = {
    "qkvr_prep_and_write": ("qkvr_prep",),
    "conv_add_norm": ("short_conv", "rms_norm"),
    "mixture": ("router", "experts", "shared_experts"),
}
"""Joined step -> the ops that it is made of, in the order of the body's arguments."""


class MixtureWeights(NamedTuple):
    """One layer's experts as its back end packed them, and its gate.

    gate_ED: routed rows first, then the S shared ones. bias_E, global_scale: of the published gate.
    choice_bias_E: bias_E and, for the shared rows, ALWAYS: a choice among all rows takes those too.
    scale: [1] route_scale * global_scale.
    """

    gate_ED: Tensor
    bias_E: Tensor
    global_scale: Tensor
    choice_bias_E: Tensor
    scale: Tensor
    w13: Any
    w2: Any
    shared_w13: Tensor
    shared_w2: Tensor


ALWAYS = 1e30
"""Selection bias above any score."""


def qkvr_prep_and_write(
    qkvr_prep: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]],
    q_TC: Tensor,
    k_TC: Tensor,
    v_TC: Tensor,
    r_TC: Tensor,
    weights: QkvrWeights,
    k_history_QJC: Tensor,
    v_history_QJC: Tensor,
    tau_T: Tensor | None,
    eps: float,
    kv: KVCache,
    layer: int,
    step: Any,
) -> tuple[Tensor, Tensor]:
    """`q_TNH, rel_TNR` of `ops.qkvr_prep`; its keys and values lie in the cache afterwards.

    Arguments as there, `starts` being the step's; `kv` is written in place for `layer`. What
    padding tokens leave in the null block is open.
    """
    q_TNH, k_TGH, v_TGH, rel_TNR = qkvr_prep(
        q_TC, k_TC, v_TC, r_TC, weights, k_history_QJC, v_history_QJC, step.starts, tau_T, eps
    )
    kv.write(layer, k_TGH, v_TGH, step)
    return q_TNH, rel_TNR


def conv_add_norm(
    short_conv: Callable[..., Tensor],
    rms_norm: Callable[..., Tensor],
    stream_TD: Tensor,
    delta_TD: Tensor,
    history_QJD: Tensor,
    conv_DW: Tensor,
    starts: Sequence[int],
    norm_D: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The residual stream after a block, and what the next block reads of it.

    Args:
        stream_TD: residual stream before the block.
        delta_TD: the block's raw output, which the convolution reads.
        history_QJD, conv_DW, starts: of `ops.short_conv`.
        norm_D, eps: of `ops.rms_norm`.

    Returns:
        `stream_TD + short_conv(delta_TD)` and its norm, `[T, D]` each.
    """
    stream_TD = stream_TD + short_conv(delta_TD, history_QJD, conv_DW, starts)
    return stream_TD, rms_norm(stream_TD, norm_D, eps)


def mixture(
    router: Callable[..., tuple[Tensor, Tensor, Tensor]],
    experts: Callable[..., Tensor],
    shared_experts: Callable[..., Tensor],
    x_TD: Tensor,
    weights: MixtureWeights,
    num_chosen: int,
    num_shared: int,
    route_scale: float,
) -> tuple[Tensor, ...]:
    """This rank's parts of a mixture of experts, `[T, D]` each: their sum over parts and ranks is
    the layer's output.

    Args:
        x_TD: normalised hidden states.
        num_chosen, num_shared, route_scale: of `ops.router`.
    """
    ids_TK, weights_TK, gamma_TS = router(
        x_TD,
        weights.gate_ED,
        weights.bias_E,
        weights.global_scale,
        num_chosen,
        num_shared,
        route_scale,
    )
    routed_TD = experts(x_TD, ids_TK, weights_TK, weights.w13, weights.w2)
    return routed_TD, shared_experts(x_TD, gamma_TS, weights.shared_w13, weights.shared_w2)
