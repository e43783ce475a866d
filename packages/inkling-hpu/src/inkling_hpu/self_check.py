"""Proof at start that the expert op does not reduce over the ranks by itself.

    expert op (x, experts 0 .. K-1)  ==  this rank's own sum, computed from the same weights

The decoder adds routed and shared experts per rank and reduces once. An expert kernel that reduced
as well would count the routed part once per rank: fluent, wrong, and silent. Calling the kernel
without vLLM's layer around it rules that out by construction; this check proves it on the machine
that serves, with the weights that serve.

What it is not: a parity test. The limit is far above rounding and far below a second reduce, which
adds the other ranks' parts and is off by about their number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inkling_core.layers.moe import MoE
from inkling_core.model import Decoder
from inkling_hpu.markers import torch_body
from inkling_hpu.refusals import RefusedError

LIMIT = 0.1  # relative; bfloat16 rounding is about 0.01, a second reduce at 2 ranks about 1
TOKENS = 3


def check_experts(decoder: Decoder) -> None:
    """Compare the expert op of the first layer that has experts with its own torch body.

    Needs loaded weights; every rank has to call it. Raises RefusedError naming the deviation.
    """
    layer = next((m for m in decoder.modules() if isinstance(m, MoE)), None)
    if layer is None:
        return
    error = expert_error(layer)
    if not error <= LIMIT:  # written so that NaN fails too
        raise RefusedError(
            f"the expert op is off by {error:.2f} of its own result on rank {decoder.tp.rank} of "
            f"{decoder.tp.size}, the limit is {LIMIT}: it does not return this rank's own sum "
            "(a reduce inside it would do that). Do not serve; the expert kernel of this "
            "installation has changed"
        )


@torch.inference_mode()
def expert_error(layer: MoE) -> float:
    """Norm of (expert op - own sum) over the norm of the own sum."""
    w13, w2 = layer.experts.w13_weight, layer.experts.w2_weight
    x_TD, ids_TK, weights_TK = _probe(layer, w13)
    got = layer.ops.experts(x_TD, ids_TK, weights_TK, w13, w2).float()
    own = torch_body("moe")(x_TD, ids_TK, weights_TK, w13.flatten(1, -2), w2).float()
    return float((got - own).norm() / own.norm())


def _probe(layer: MoE, w13: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same on every rank: tokens of unit scale, each to its own run of experts."""
    experts, hidden, chosen = w13.shape[0], w13.shape[-1], layer.num_chosen
    device, dtype = w13.device, w13.dtype
    numbers = torch.arange(TOKENS * hidden, dtype=torch.float32).view(TOKENS, hidden)
    ids_TK = torch.arange(TOKENS)[:, None] + torch.arange(chosen)
    weights_TK = torch.full((TOKENS, chosen), 1.0 / chosen, dtype=dtype)
    return (
        (numbers * 0.7).sin().to(dtype).to(device),
        (ids_TK % experts).to(device),
        weights_TK.to(device),
    )
