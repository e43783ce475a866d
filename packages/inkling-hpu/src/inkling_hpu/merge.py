"""Attention over parts of the keys, put together by log-sum-exp.

    lse = log sum exp(scores)      of a part, one number a query row and head
    out = sum_p out_p * exp(lse_p - max lse) / sum_p exp(lse_p - max lse)

A number that all parts add to their lse cancels, so a factor on all row sums does no harm; one on
some of them would, silently: `merge_check` looks for it on the machine that serves.

What it is not: the parts (prefill.py) or a kernel (`markers.fsdpa_lse`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Part = tuple[Tensor, Tensor]
"""out [Q, N, S, H] and lse float32 [Q, N, S] of some of the keys."""


def merged(parts: Sequence[Part]) -> Tensor:
    """`[Q, N, S, H]`, what one call over all keys would give; summed in float32, rounded once."""
    if len(parts) == 1:
        return parts[0][0]
    share_PQNS = torch.softmax(torch.stack([lse for _, lse in parts]), dim=0)
    out_PQNSH = torch.stack([out for out, _ in parts])
    return (out_PQNSH * share_PQNS[..., None]).sum(0).to(out_PQNSH.dtype)
