"""The bias of consecutive keys without an index: pad, cut anew, add.

    keys of a chunk   positions context - reach .. context + S - 1, in order: K = reach + S columns
    distance          reach + i - j                           row i, column j
    line of row i     0 .. 0 | rel[i, R-1] .. rel[i, 0] | 0   distances K - 1 .. 0, -1: K + 1 long
    mask[i, j]        line[i, S - 1 - i + j]

Each row of the mask is its line, taken one element later than the row below it. So lines that lie
end to end, cut into pieces of K from element S - 1 on, are the mask: a view. A piece that runs over
the end of its line takes from the next one, but only in columns of the future (j > reach + i).
`hidden` covers those, and whatever else a query must not see, alike for all heads and layers.

What it is not: the choice of the keys (prefill.py), or the table of the decode step (bias.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_hpu.bias import HIDDEN


def mask(rel_QNSR: Tensor, reach: int, hidden_Q1SK: Tensor) -> Tensor:
    """`[Q, N, S, K]` bias of each pair, 0 beyond the extent, and what `hidden` says on top.

    Args:
        rel_QNSR: relative logits of the query rows by distance.
        reach: columns before the first of these rows.
        hidden_Q1SK: see `hidden`; has to cover columns of the future.
    """
    return skewed(rel_QNSR, reach) + hidden_Q1SK


def skewed(rel_QNSR: Tensor, reach: int) -> Tensor:
    """`[Q, N, S, K]` bias, a view; anything in columns of the future."""
    length = rel_QNSR.shape[2]
    columns = reach + length
    extent = min(rel_QNSR.shape[3], columns)
    nearest_last = rel_QNSR[..., :extent].flip(-1)
    lines = F.pad(nearest_last, (columns - extent, 1)).flatten(2)
    cut = lines[..., length - 1 : length - 1 + length * columns]
    return cut.unflatten(-1, (length, columns))


def hidden(
    contexts_Q: Tensor,
    rows: tuple[int, int],
    reach: int,
    window: int | None,
    dtype: torch.dtype,
) -> Tensor:
    """`[Q, 1, Sq, K]`: HIDDEN where row `rows[0] + i` must not see column j, else 0; K = reach +
    rows[1].

    Hidden are keys of the future, of positions below 0, and at a distance of `window` or more.

    Args:
        contexts_Q: int64 [Q], positions before the chunk.
        rows: first and last + 1 query row of the chunk.
        reach: columns before the chunk.
        window: keys seen, the query's own included; None for all.
    """
    device = contexts_Q.device
    query_S1 = reach + torch.arange(*rows, device=device)[:, None]
    column_K = torch.arange(reach + rows[1], device=device)
    unseen_QSK = (column_K > query_S1) | (column_K < reach - contexts_Q[:, None, None])
    if window is not None:
        unseen_QSK = unseen_QSK | (column_K <= query_S1 - window)
    return (unseen_QSK.to(dtype) * HIDDEN)[:, None]
