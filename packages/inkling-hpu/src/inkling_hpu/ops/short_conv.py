"""Short convolution as float32 shifted multiply-adds over rectangular rows; law:
`inkling_core.ops.short_conv`.

    x [Q, S, C] behind its history [Q, J, C];   y[s] = x[s] + sum_w weight[w] * padded[s + w]

Never `F.conv1d`: a depthwise convolution with groups stalls on its weight transpose on this device.
Nothing is written in place: `history_QJC` is a view of what the conv store gathered and still
needs, and inputs of a graph outlive it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def short_conv(
    x_TC: Tensor, history_QJC: Tensor, weight_CW: Tensor, starts: Sequence[int]
) -> Tensor:
    """See `inkling_core.ops.short_conv`: same arguments, same result.

    Raises ValueError where `starts` are not 0, S, 2S, ... up to T: rows have one length here.
    """
    num_rows, total = len(starts) - 1, x_TC.shape[0]
    if starts[-1] != total or starts[1] * num_rows != total:
        raise ValueError(
            f"starts {tuple(starts[:3])}... of {total} packed tokens: this back end takes rows of "
            "one length, padding included (HpuStep.starts)"
        )
    history = weight_CW.shape[1] - 1
    taps_WC = weight_CW.T
    if total == num_rows:
        mixed = (history_QJC * taps_WC[:history]).sum(1)  # float32 by promotion
    else:
        x_QSC = x_TC.unflatten(0, (num_rows, -1))
        padded = torch.cat([history_QJC, x_QSC], dim=1)
        length = x_QSC.shape[1]
        mixed = padded[:, :length] * taps_WC[0]
        for w in range(1, history):
            mixed = torch.addcmul(mixed, padded[:, w : w + length], taps_WC[w])
        mixed = mixed.flatten(0, 1)
    return (torch.addcmul(mixed, x_TC, taps_WC[history]) + x_TC).to(x_TC.dtype)
