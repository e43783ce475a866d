"""Sigmoid routing in eleven ops; law: `inkling_core.ops.router`.

    chosen  = top K of sigmoid(routed logits) + bias
    weights = softmax(logsigmoid(chosen and shared logits)) * route_scale * global_scale

Not the law's order of equal scores: `topk` leaves that open (the law takes the lowest index), and
two experts tie only where bias and logit agree to the last bit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_hpu import markers


def router(
    x_TD: Tensor,
    weight_ED: Tensor,
    bias_E: Tensor,
    global_scale: Tensor,
    num_chosen: int,
    num_shared: int,
    route_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `inkling_core.ops.router`: same arguments, same result."""
    logits_TE = markers.mm_f32(x_TD, weight_ED)
    routed_TE, shared_TS = logits_TE[:, :-num_shared], logits_TE[:, -num_shared:]
    ids_TK = torch.topk(routed_TE.sigmoid() + bias_E, num_chosen, dim=-1).indices
    chosen_TX = torch.cat([routed_TE.gather(-1, ids_TK), shared_TS], dim=-1)
    weights_TX = torch.softmax(F.logsigmoid(chosen_TX), dim=-1)
    weights_TX = (weights_TX * (route_scale * global_scale)).to(x_TD.dtype)
    return ids_TK, weights_TX[:, :num_chosen], weights_TX[:, num_chosen:]
