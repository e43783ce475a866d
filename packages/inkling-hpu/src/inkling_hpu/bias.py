"""Relative logits as a table that one gather turns into a bias with its mask.

    column d          rel[d]                 distance d = query position - key position
    column R          0                      visible, beyond the extent
    column R + 1      HIDDEN                 future, outside the window, padding

Not an index: `decode` and `prefill` say which column each key gets.

HIDDEN is finite: a block of keys that is hidden as a whole must not turn into -inf minus -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor

HIDDEN = -1e30
"""Far below any score, far above the least float32 and bfloat16, so that two of them still add."""


def table(rel: Tensor, tail: Tensor) -> Tensor:
    """`[..., R]` relative logits -> `[..., R + 2]`; `tail` broadcasts from `[2]`."""
    return torch.cat([rel, tail.expand(*rel.shape[:-1], 2)], dim=-1)


def tail(dtype: torch.dtype, device: torch.device) -> Tensor:
    """`[2]`: the columns 0 and HIDDEN."""
    return torch.arange(2, dtype=dtype, device=device) * HIDDEN


def columns(distance: Tensor, visible: Tensor, extent: int, window: int | None) -> Tensor:
    """Table column of each (query, key) pair, int64.

    Args:
        distance: query position minus key position, any shape.
        visible: bool, keys that exist at all; broadcasts to `distance`.
        extent: R.
        window: keys seen, the query's own included; None for all.
    """
    seen = visible & (distance >= 0)
    if window is not None:
        seen = seen & (distance < window)
    return torch.where(seen, distance.clamp(0, extent), extent + 1)
