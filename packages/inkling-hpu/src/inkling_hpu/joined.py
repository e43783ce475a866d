"""The joined steps of `inkling_core.joined` on a Gaudi. Not ops, not a second decoder.

    qkvr_prep_and_write   } their bodies, over a convolution that knows histories weighed in
    conv_add_norm         } advance (`conv_hoist`)
    mixture               shared experts as experts that every token chooses: one choice, one
                          softmax, one kernel

JOINED is what `backend.HPU` offers.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_core import joined as one_by_one
from inkling_core.joined import MixtureWeights
from inkling_core.ops.qkvr_prep import prepared_by
from inkling_hpu import markers
from inkling_hpu.conv_hoist import convolved
from inkling_hpu.ops.experts import every_expert
from inkling_hpu.ops.norm import rms_norm


def mixture(
    x_TD: Tensor,
    weights: MixtureWeights,
    num_chosen: int,
    num_shared: int,
    route_scale: float,
) -> tuple[Tensor, ...]:
    """See `inkling_core.joined.mixture`: one part. The weight of a shared expert comes after w2, as
    that of a routed one; `weights.scale` stands for `route_scale`."""
    logits_TE = markers.mm_f32(x_TD, weights.gate_ED)
    choice_TE = logits_TE.sigmoid() + weights.choice_bias_E
    ids_TX = torch.topk(choice_TE, num_chosen + num_shared, dim=-1).indices
    weights_TX = torch.softmax(F.logsigmoid(logits_TE.gather(-1, ids_TX)), dim=-1)
    weights_TX = (weights_TX * weights.scale).to(x_TD.dtype)
    routed, shared = (weights.w13, weights.w2), (weights.shared_w13, weights.shared_w2)
    return (every_expert(x_TD, ids_TX, weights_TX, *routed, *shared),)


JOINED = {
    "mixture": mixture,
    "qkvr_prep_and_write": partial(
        one_by_one.qkvr_prep_and_write, partial(prepared_by, rms_norm, convolved)
    ),
    "conv_add_norm": partial(one_by_one.conv_add_norm, convolved, rms_norm),
}
