"""Causal depthwise short convolution with its residual, over packed requests.

Not the owner of any state: `conv_state` hands in each request's history and keeps the rows.

    y[t, c] = x[t, c] + sum_w weight[c, w] * x[t - (W - 1) + w, c]

Tap W - 1 is the current token. Values before a request's first token in this step come from its
history (zeros at the start of a sequence). No activation. Float32 inside.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor


def short_conv(
    x_TC: Tensor, history_QJC: Tensor, weight_CW: Tensor, starts: Sequence[int]
) -> Tensor:
    """Applies the convolution to every request of a step.

    Args:
        x_TC: raw inputs of the packed tokens.
        history_QJC: the J = W - 1 raw inputs before each request's first token, oldest first.
        weight_CW: taps; the last one weighs the current token.
        starts: Q + 1 packed offsets. Rows past the last offset are padding and come back as zeros.

    Returns:
        `[T, C]` in the dtype of `x_TC`.
    """
    num_taps = weight_CW.shape[1]
    x_f, weight_f = x_TC.float(), weight_CW.float()
    out_TC = torch.zeros_like(x_TC)
    for q, (start, end) in enumerate(itertools.pairwise(starts)):
        padded = torch.cat([history_QJC[q].float(), x_f[start:end]])
        mixed = x_f[start:end].clone()
        for w in range(num_taps):
            mixed += weight_f[:, w] * padded[w : w + end - start]
        out_TC[start:end] = mixed.to(x_TC.dtype)
    return out_TC
