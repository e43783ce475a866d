"""Vocabulary head.

Not the final norm (the model owns it) and not sampling:

    logits = (x / multiplier) @ unembed.T       the division comes first, in model dtype

The padded rows of `unembed` are not zero in general; they are cut by the caller that knows all
shards (`Decoder.logits`), never relied upon.
"""

import torch.nn.functional as F
from torch import Tensor


def logits(x_TD: Tensor, unembed_VD: Tensor, multiplier: float) -> Tensor:
    """`[T, D]` final-normed hidden states -> `[T, V]` logits, in the dtype of `x_TD`."""
    return F.linear(x_TD / multiplier, unembed_VD)
