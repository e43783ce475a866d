"""Routed and shared experts; law: `inkling_core.ops.experts`.

Two ways to the same sum. Where vLLM's fused kernel runs (bf16, see kernels.py) the weights are kept
in its tiles and each layer is one call; it sums in float32 and weighs after `w2`, so that shared
experts round their gamma later than the law does. Elsewhere: tokens sorted by expert, two matrix
products an expert, no kernel.

    packed weights are told by their shape: [E, 2I * D] and [E, D * I] instead of three dimensions
"""

from __future__ import annotations

import torch
from torch import Tensor

from inkling_core import ops
from inkling_core.serving.cpu.kernels import fused_experts


def pack_experts(w13_ECD: Tensor, w2_EDI: Tensor) -> tuple[Tensor, Tensor]:
    """See `inkling_core.ops.pack_experts`. The kernel wants all gate rows before all up rows."""
    hidden, width = w2_EDI.shape[1:]
    fused = fused_experts(w13_ECD.dtype, hidden, width)
    if fused is None:
        return w13_ECD, w2_EDI
    kernels, isa = fused
    halves_ECD = torch.cat([w13_ECD[:, 0::2], w13_ECD[:, 1::2]], dim=1)
    packed13 = kernels.cpu_prepack_moe_weight(halves_ECD, isa)
    packed2 = kernels.cpu_prepack_moe_weight(w2_EDI.contiguous(), isa)
    return packed13.flatten(1), packed2.flatten(1)


def experts(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    """See `inkling_core.ops.experts`: same arguments (weights packed or not), same result."""
    if w13_ECD.dim() == 2:
        return _fused(x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI)
    return _by_expert(x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI)


def shared_experts(x_TD: Tensor, gamma_TS: Tensor, w13_SCD: Tensor, w2_SDI: Tensor) -> Tensor:
    """See `inkling_core.ops.shared_experts`: same arguments (weights packed or not), same sum."""
    if w13_SCD.dim() == 2:
        ids_TS = torch.arange(gamma_TS.shape[1], dtype=torch.int32).expand(gamma_TS.shape)
        return _fused(x_TD, ids_TS, gamma_TS, w13_SCD, w2_SDI)
    return ops.shared_experts(x_TD, gamma_TS, w13_SCD, w2_SDI)


def _fused(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, packed13: Tensor, packed2: Tensor
) -> Tensor:
    hidden, width = x_TD.shape[1], packed2.shape[1] // x_TD.shape[1]
    fused = fused_experts(x_TD.dtype, hidden, width)
    assert fused is not None, "packed weights exist only where the kernel runs"
    kernels, isa = fused
    out_TD = torch.empty_like(x_TD)
    kernels.cpu_fused_moe(
        out_TD,
        x_TD.contiguous(),
        packed13.view(-1, 2 * width, hidden),
        packed2.view(-1, hidden, width),
        None,
        None,
        weights_TK.float().contiguous(),
        ids_TK.to(torch.int32).contiguous(),
        "silu",
        isa,
    )
    return out_TD


def _by_expert(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    num_tokens, chosen = ids_TK.shape
    sorted_P, order_P = ids_TK.flatten().sort(stable=True)
    x_PD = x_TD[order_P // chosen]
    slices = _slices(sorted_P)
    gate_up = torch.empty(len(order_P), w13_ECD.shape[1], dtype=x_TD.dtype)
    for expert, first, last in slices:
        torch.mm(x_PD[first:last], w13_ECD[expert].T, out=gate_up[first:last])
    hidden_PI = ops.silu_and_mul(gate_up)
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
