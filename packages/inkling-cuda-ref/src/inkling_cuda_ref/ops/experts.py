"""Routed and shared experts, grouped products over sorted tokens; law: `inkling_core.ops.experts`.

Not the router. Three launches, the same for both kinds, told apart by where the weight goes:

    hidden = silu(gate) * up          [P, I]   P pairs sorted by expert; shared: times gamma
    y      = hidden @ w2              [P, D]   at its unsorted place; routed: times weight
    out    = sum of a token's K rows  [T, D]   float32, rounded once
"""

# Kernel bodies are Triton's language, which Python's types do not describe.
# pyright: reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.expert_groups import ExpertGroups, every_token_each, grouped
from inkling_cuda_ref.storage import device, launch, operand, rounded, stored, tile
from inkling_cuda_ref.tile_math import gated


@device
def _tile_rows(
    number, ends_ptr, tile_ends_ptr, num_experts, ROWS: tl.constexpr, EXPERTS: tl.constexpr
):
    """Expert of tile `number` (num_experts: there is no such tile), its places, which are real."""
    index = tl.arange(0, EXPERTS)
    ends = tl.load(tile_ends_ptr + index, mask=index < num_experts, other=0)
    before = (ends <= number) & (index < num_experts)
    expert = tl.sum(before.to(tl.int32), axis=0)
    tiles_before = tl.max(tl.where(before, ends, 0), axis=0)
    pairs = tl.load(ends_ptr + index, mask=index < num_experts, other=0)
    first = tl.max(tl.where(before, pairs, 0), axis=0)
    last = tl.max(tl.where((index <= expert) & (index < num_experts), pairs, 0), axis=0)
    place = first + (number - tiles_before) * ROWS + tl.arange(0, ROWS)
    return expert.to(tl.int64), place, place < last


@triton.jit
def _gate_up_kernel(
    x_ptr,
    w13_ptr,
    weights_ptr,
    order_ptr,
    ends_ptr,
    tile_ends_ptr,
    hidden_ptr,
    num_experts,
    chosen,
    depth,
    width,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    EXPERTS: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = hidden_ptr.dtype.element_ty
    expert, place, real = _tile_rows(
        tl.program_id(0), ends_ptr, tile_ends_ptr, num_experts, ROWS, EXPERTS
    )
    if expert < num_experts:
        pair = tl.load(order_ptr + place, mask=real, other=0)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        gate = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
        up = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
        for first in range(0, depth, DEPTH):
            d = first + tl.arange(0, DEPTH)
            inside = real[:, None] & (d < depth)[None, :]
            x = tl.load(
                x_ptr + (pair // chosen)[:, None] * depth + d[None, :], mask=inside, other=0.0
            )
            x = operand(x, WIDE)
            # row 2i of w13 is gate row i, row 2i + 1 is up row i
            row = w13_ptr + (expert * 2 * width + 2 * column)[None, :] * depth + d[:, None]
            known = (column < width)[None, :] & (d < depth)[:, None]
            gate_w = tl.load(row, mask=known, other=0.0)
            up_w = tl.load(row + depth, mask=known, other=0.0)
            gate += tl.dot(x, operand(gate_w, WIDE), input_precision="ieee")
            up += tl.dot(x, operand(up_w, WIDE), input_precision="ieee")
        hidden = gated(rounded(gate, dtype, WIDE), rounded(up, dtype, WIDE), dtype, WIDE)
        if WEIGHTED:
            weight = tl.load(weights_ptr + pair, mask=real, other=0.0).to(tl.float32)
            hidden = hidden * weight[:, None]
        inside = real[:, None] & (column < width)[None, :]
        offset = place.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(hidden_ptr + offset, stored(hidden, dtype, WIDE), mask=inside)


@triton.jit
def _down_kernel(
    hidden_ptr,
    w2_ptr,
    weights_ptr,
    order_ptr,
    ends_ptr,
    tile_ends_ptr,
    y_ptr,
    num_experts,
    depth,
    width,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    EXPERTS: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    expert, place, real = _tile_rows(
        tl.program_id(0), ends_ptr, tile_ends_ptr, num_experts, ROWS, EXPERTS
    )
    if expert < num_experts:
        pair = tl.load(order_ptr + place, mask=real, other=0)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        y = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
        for first in range(0, depth, DEPTH):
            d = first + tl.arange(0, DEPTH)
            inside = real[:, None] & (d < depth)[None, :]
            offset = place.to(tl.int64)[:, None] * depth + d[None, :]
            hidden = tl.load(hidden_ptr + offset, mask=inside, other=0.0)
            known = (column < width)[None, :] & (d < depth)[:, None]
            row = w2_ptr + (expert * width + column)[None, :] * depth + d[:, None]
            w2 = tl.load(row, mask=known, other=0.0)
            y += tl.dot(operand(hidden, WIDE), operand(w2, WIDE), input_precision="ieee")
        if WEIGHTED:
            weight = tl.load(weights_ptr + pair, mask=real, other=0.0).to(tl.float32)
            y = rounded(y, dtype, WIDE) * weight[:, None]
        inside = real[:, None] & (column < width)[None, :]
        tl.store(
            y_ptr + pair[:, None] * width + column[None, :], stored(y, dtype, WIDE), mask=inside
        )


@triton.jit
def _sum_kernel(
    y_ptr,
    out_ptr,
    total,
    width,
    CHOSEN: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    token, column = index // width, index % width
    out = tl.full((BLOCK,), 0.0, tl.float32)
    for k in tl.static_range(CHOSEN):
        row = (token * CHOSEN + k) * width + column
        out += tl.load(y_ptr + row, mask=index < total, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, stored(out, out_ptr.dtype.element_ty, WIDE), mask=index < total)


def pack_experts(w13_ECD: Tensor, w2_EDI: Tensor) -> tuple[Tensor, Tensor]:
    """As published: the kernels read gate and up rows where they lie."""
    return w13_ECD, w2_EDI


def experts(
    x_TD: Tensor, ids_TK: Tensor, weights_TK: Tensor, w13_ECD: Tensor, w2_EDI: Tensor
) -> Tensor:
    """See `inkling_core.ops.experts`: same arguments, same result."""
    return _mixed(x_TD, ids_TK, weights_TK, w13_ECD, w2_EDI, weight_first=False)


def shared_experts(x_TD: Tensor, gamma_TS: Tensor, w13_SCD: Tensor, w2_SDI: Tensor) -> Tensor:
    """See `inkling_core.ops.shared_experts`: same arguments, same result."""
    ids_TS = every_token_each(len(x_TD), len(w2_SDI), x_TD.device)
    return _mixed(x_TD, ids_TS, gamma_TS, w13_SCD, w2_SDI, weight_first=True)


def _mixed(
    x_TD: Tensor,
    ids_TK: Tensor,
    weights_TK: Tensor,
    w13_ECD: Tensor,
    w2_EDI: Tensor,
    weight_first: bool,
) -> Tensor:
    """Sum over each token's experts; the weight multiplies before or after w2."""
    chosen, (num_experts, hidden, width) = ids_TK.shape[1], w2_EDI.shape
    rows = max(16, tile(triton.cdiv(ids_TK.numel(), num_experts), 64, 512))
    groups: ExpertGroups = grouped(ids_TK, num_experts, rows)
    index = groups[:3]
    x_TD, weights_TK = x_TD.contiguous(), weights_TK.contiguous()
    hidden_PI = x_TD.new_empty(ids_TK.numel(), width)
    y_PD, out_TD = x_TD.new_empty(ids_TK.numel(), hidden), torch.empty_like(x_TD)
    sizes = {"ROWS": rows, "EXPERTS": triton.next_power_of_2(num_experts)}

    def edges(columns: int, depth: int) -> dict[str, int]:
        return {
            "COLUMNS": max(16, tile(columns, 64, 2048)),
            "DEPTH": max(16, tile(depth, 64, 2048)),
        }

    launch(
        _gate_up_kernel, (groups.most_tiles, triton.cdiv(width, edges(width, hidden)["COLUMNS"])),
        x_TD, w13_ECD.contiguous(), weights_TK, *index, hidden_PI, num_experts, chosen, hidden,
        width, WEIGHTED=weight_first, **sizes, **edges(width, hidden),
    )  # fmt: skip
    launch(
        _down_kernel, (groups.most_tiles, triton.cdiv(hidden, edges(hidden, width)["COLUMNS"])),
        hidden_PI, w2_EDI.contiguous(), weights_TK, *index, y_PD, num_experts, width, hidden,
        WEIGHTED=not weight_first, **sizes, **edges(hidden, width),
    )  # fmt: skip
    block = tile(out_TD.numel(), 1024, 1 << 17)
    grid = (triton.cdiv(out_TD.numel(), block),)
    launch(_sum_kernel, grid, y_PD, out_TD, out_TD.numel(), hidden, CHOSEN=chosen, BLOCK=block)
    return out_TD
