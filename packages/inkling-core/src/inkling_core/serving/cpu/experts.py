"""Routed experts over tokens sorted by expert; law: `inkling_core.ops.experts`.

Not a fused kernel: two matrix products per expert that has tokens, everything elementwise once
over all of them. Weights stay in the published interleaved layout and dtype.

    pairs (token, choice) sorted by expert -> one slice of rows per expert
    y = w2(silu(gate) * up), then times the weight, then the K rows of a token are summed
"""

from __future__ import annotations

import torch
from torch import Tensor

from inkling_core.ops import silu_and_mul


def experts(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    """See `inkling_core.ops.experts`: same arguments, same result."""
    num_tokens, chosen = ids_TK.shape
    sorted_P, order_P = ids_TK.flatten().sort(stable=True)
    x_PD = x_TD[order_P // chosen]
    slices = _slices(sorted_P)
    gate_up = torch.empty(len(order_P), w13_ECD.shape[1], dtype=x_TD.dtype)
    for expert, first, last in slices:
        torch.mm(x_PD[first:last], w13_ECD[expert].T, out=gate_up[first:last])
    hidden_PI = silu_and_mul(gate_up)
    y_PD = torch.empty_like(x_PD)
    for expert, first, last in slices:
        torch.mm(hidden_PI[first:last], w2_EDI[expert].T, out=y_PD[first:last])
    y_PD *= weights_TK.flatten()[order_P, None]
    unsorted_PD = torch.empty_like(y_PD)
    unsorted_PD[order_P] = y_PD
    return unsorted_PD.view(num_tokens, chosen, -1).sum(1)


def _slices(sorted_P: Tensor) -> list[tuple[int, int, int]]:
    """(expert, first row, last row + 1) of every expert that has rows."""
    found, counts = torch.unique_consecutive(sorted_P, return_counts=True)
    slices, first = [], 0
    for expert, count in zip(found.tolist(), counts.tolist(), strict=True):
        slices.append((expert, first, first + count))
        first += count
    return slices
