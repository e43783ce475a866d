"""Short convolution over all requests of a step at once; law: `inkling_core.ops.short_conv`.

Not a loop over requests. History and tokens of all requests lie in one buffer, request after
request, J history rows before each request's own:

    row of token t of request q = t + J * (q + 1);   tap w reads J - w rows before it

so W shifted multiply-adds over the buffer cover every request, and one selection takes the tokens'
rows out. Where every request brings one token, the buffer is a plain [Q, W, C].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def short_conv(
    x_TC: Tensor, history_QJC: Tensor, weight_CW: Tensor, starts: Sequence[int]
) -> Tensor:
    """See `inkling_core.ops.short_conv`: same arguments, same result."""
    requests, total = len(starts) - 1, starts[-1]
    if total == requests:
        out_TC = _one_token_each(x_TC[:total], history_QJC, weight_CW)
    else:
        out_TC = _packed(x_TC[:total], history_QJC, weight_CW, tuple(starts))
    if total == len(x_TC):
        return out_TC
    return torch.cat([out_TC, out_TC.new_zeros(len(x_TC) - total, x_TC.shape[1])])


def _one_token_each(x_QC: Tensor, history_QJC: Tensor, weight_CW: Tensor) -> Tensor:
    x_f = x_QC.float()
    history = (history_QJC.float() * weight_CW[:, :-1].T.float()).sum(1)
    mixed = torch.addcmul(x_f + history, x_f, weight_CW[:, -1].float())
    return mixed.to(x_QC.dtype)


def _packed(
    x_TC: Tensor, history_QJC: Tensor, weight_CW: Tensor, starts: tuple[int, ...]
) -> Tensor:
    requests, history, channels = history_QJC.shape
    rows_T, rows_QJ = _rows(starts, history)
    buffer = torch.empty(len(x_TC) + requests * history, channels, dtype=torch.float32)
    buffer[rows_QJ] = history_QJC.reshape(-1, channels).float()
    buffer[rows_T] = x_TC.float()
    taps = weight_CW.T.float().contiguous()
    span = len(buffer) - history
    mixed = buffer[history:].clone()
    for w in range(history + 1):
        mixed.addcmul_(buffer[w : w + span], taps[w])
    return mixed[rows_T - history].to(x_TC.dtype)


@lru_cache(maxsize=8)
def _rows(starts: tuple[int, ...], history: int) -> tuple[Tensor, Tensor]:
    """Buffer rows of the tokens [T] and of the history entries [Q * J]; one step asks often."""
    lengths = torch.tensor(starts[1:]) - torch.tensor(starts[:-1])
    owner_T = torch.repeat_interleave(lengths)
    rows_T = torch.arange(starts[-1]) + history * (owner_T + 1)
    first_Q = torch.tensor(starts[:-1]) + history * torch.arange(len(lengths))
    return rows_T, (first_Q[:, None] + torch.arange(history)).flatten()
