"""Sigmoid routing over routed experts, with the shared experts as a sink of the weights.

Not the experts themselves. All float32 until the final cast:

    chosen  = top K of sigmoid(routed logits) + bias       bias chooses, it never weighs
    weights = sigmoid(chosen and shared logits) / their sum, times route_scale * global_scale

Ties go to the lowest expert index.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def router(
    x_TD: Tensor,
    weight_ED: Tensor,
    bias_E: Tensor,
    global_scale: Tensor,
    num_chosen: int,
    num_shared: int,
    route_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Chooses experts and their weights.

    Args:
        x_TD: normalised hidden states.
        weight_ED: gate, routed rows first, then `num_shared` shared rows.
        bias_E: selection bias, routed experts only.
        global_scale: one element.
        num_chosen: K experts per token.
        num_shared: number of always-on experts.
        route_scale: constant factor of all weights.

    Returns:
        `ids_TK` int64, `weights_TK` and `gamma_TS` (S = shared experts) in the dtype of `x_TD`.
    """
    logits_TE = F.linear(x_TD.float(), weight_ED.float())
    routed_TE, shared_TS = logits_TE[:, :-num_shared], logits_TE[:, -num_shared:]
    choice_TE = routed_TE.sigmoid() + bias_E.float()
    # A stable sort, since topk leaves the order of equal scores open.
    ids_TK = choice_TE.argsort(dim=-1, descending=True, stable=True)[:, :num_chosen]
    log_TX = F.logsigmoid(torch.cat([routed_TE.gather(-1, ids_TK), shared_TS], dim=-1))
    weights_TX = torch.exp(log_TX - torch.logsumexp(log_TX, dim=-1, keepdim=True))
    weights_TX = (weights_TX * route_scale * global_scale.float()).to(x_TD.dtype)
    return ids_TK, weights_TX[:, :num_chosen], weights_TX[:, num_chosen:]
