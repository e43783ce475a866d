"""Queries, keys, values and relative logits of a step in one launch.

Not an op: `ops.qkvr_prep` gives it tensors of its own, `joined.qkvr_prep_and_write` the paged
slots, which saves a pass over keys and values. A row is one head of one token, and a program makes
a tile of rows of one kind:

    queries   norm, tau; and the head's relative logits r @ proj, tau
    keys      convolution on flat channels (history included), residual, norm
    values    convolution, residual
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from inkling_core.ops import QkvrWeights
from inkling_cuda_ref.packing import packing
from inkling_cuda_ref.storage import device, launch, operand, power_of_2, rounded, stored, tile
from inkling_cuda_ref.tile_math import convolved, normed_rows


@device
def _query_program(
    q_ptr,
    weight_ptr,
    tau_ptr,
    out_ptr,
    row,
    real,
    heads,
    width,
    eps,
    SCALED: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A tile of queries, normed and scaled."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    column = tl.arange(0, COLUMNS)
    inside = real[:, None] & (column < width)[None, :]
    offset = row[:, None] * width + column[None, :]
    q = tl.load(q_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=column < width, other=0.0).to(tl.float32)
    q = normed_rows(q, weight[None, :], width, eps, dtype, WIDE)
    if SCALED:
        tau = tl.load(tau_ptr + row // heads, mask=real, other=1.0)
        q = rounded(q, dtype, WIDE) * tau[:, None]
    tl.store(out_ptr + offset, stored(q, dtype, WIDE), mask=inside)


@device
def _relative_program(
    r_ptr,
    proj_ptr,
    tau_ptr,
    out_ptr,
    row,
    real,
    heads,
    rel_dim,
    extent,
    SCALED: tl.constexpr,
    RELATIVE: tl.constexpr,
    EXTENT: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A tile of logits by distance: a slim product, EXTENT distances at a time."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    u = tl.arange(0, RELATIVE)
    known = real[:, None] & (u < rel_dim)[None, :]
    r = tl.load(r_ptr + row[:, None] * rel_dim + u[None, :], mask=known, other=0.0)
    for first in range(0, extent, EXTENT):
        distance = first + tl.arange(0, EXTENT)
        within = (u < rel_dim)[:, None] & (distance < extent)[None, :]
        proj = tl.load(proj_ptr + u[:, None] * extent + distance[None, :], mask=within, other=0.0)
        rel = tl.dot(operand(r, WIDE), operand(proj, WIDE), input_precision="ieee")
        if SCALED:
            tau = tl.load(tau_ptr + row // heads, mask=real, other=1.0)
            rel = rounded(rel, dtype, WIDE) * tau[:, None]
        offset = row[:, None] * extent + distance[None, :]
        inside = real[:, None] & (distance < extent)[None, :]
        tl.store(out_ptr + offset, stored(rel, dtype, WIDE), mask=inside)


@device
def _key_value_program(
    x_ptr,
    history_ptr,
    conv_ptr,
    norm_ptr,
    owner_ptr,
    first_ptr,
    slots_ptr,
    out_ptr,
    row,
    real,
    heads,
    width,
    block_size,
    block_stride,
    slot_stride,
    head_stride,
    eps,
    NORMED: tl.constexpr,
    PAGED: tl.constexpr,
    TAPS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A tile of keys or values: convolution, residual, norm (keys), store."""
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    token, head, column = row // heads, row % heads, tl.arange(0, COLUMNS)
    owner = tl.load(owner_ptr + token, mask=real, other=-1)
    first = tl.load(first_ptr + token, mask=real, other=0)
    inside = real[:, None] & (column < width)[None, :]
    owned = inside & (owner >= 0)[:, None]
    channel = (head * width)[:, None] + column[None, :]
    y = convolved(
        x_ptr, history_ptr, conv_ptr, owner, first, token, channel, owned, heads * width, TAPS
    )
    y = rounded(y, dtype, WIDE)
    if NORMED:
        weight = tl.load(norm_ptr + column, mask=column < width, other=0.0).to(tl.float32)
        y = normed_rows(y, weight[None, :], width, eps, dtype, WIDE)
    slot = token
    if PAGED:  # a padding token has no slot
        slot = tl.load(slots_ptr + token, mask=real, other=0)
        inside = owned
    place = slot // block_size * block_stride + slot % block_size * slot_stride + head * head_stride
    out = stored(y, out_ptr.dtype.element_ty, WIDE)
    tl.store(out_ptr + place[:, None] + column[None, :], out, mask=inside)


@triton.jit
def _prep_kernel(
    q_ptr, k_ptr, v_ptr, r_ptr, k_history_ptr, v_history_ptr, k_conv_ptr, v_conv_ptr,
    q_norm_ptr, k_norm_ptr, proj_ptr, tau_ptr, owner_ptr, first_ptr, slots_ptr,
    q_out_ptr, k_out_ptr, v_out_ptr, rel_out_ptr,
    num_tokens, heads, kv_heads, width, rel_dim, extent, block_size,
    k_block_stride, k_slot_stride, k_head_stride, v_block_stride, v_slot_stride, v_head_stride, eps,
    SCALED: tl.constexpr, PAGED: tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, RELATIVE: tl.constexpr, EXTENT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64)
    query_tiles, key_tiles = tl.cdiv(num_tokens * heads, ROWS), tl.cdiv(num_tokens * kv_heads, ROWS)
    inner = tl.arange(0, ROWS)
    if number < query_tiles:
        row = number * ROWS + inner
        real = row < num_tokens * heads
        _query_program(
            q_ptr, q_norm_ptr, tau_ptr, q_out_ptr, row, real, heads, width, eps,
            SCALED, COLUMNS, WIDE,
        )  # fmt: skip
        _relative_program(
            r_ptr, proj_ptr, tau_ptr, rel_out_ptr, row, real, heads, rel_dim, extent,
            SCALED, RELATIVE, EXTENT, WIDE,
        )  # fmt: skip
    elif number < query_tiles + key_tiles:
        row = (number - query_tiles) * ROWS + inner
        _key_value_program(
            k_ptr, k_history_ptr, k_conv_ptr, k_norm_ptr, owner_ptr, first_ptr, slots_ptr,
            k_out_ptr, row, row < num_tokens * kv_heads, kv_heads, width, block_size,
            k_block_stride, k_slot_stride, k_head_stride, eps, True, PAGED, TAPS, COLUMNS, WIDE,
        )  # fmt: skip
    else:
        row = (number - query_tiles - key_tiles) * ROWS + inner
        _key_value_program(
            v_ptr, v_history_ptr, v_conv_ptr, k_norm_ptr, owner_ptr, first_ptr, slots_ptr,
            v_out_ptr, row, row < num_tokens * kv_heads, kv_heads, width, block_size,
            v_block_stride, v_slot_stride, v_head_stride, eps, False, PAGED, TAPS, COLUMNS, WIDE,
        )  # fmt: skip


def prepared_into(
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    slots_T: Tensor | None,
    q_TC: Tensor,
    k_TC: Tensor,
    v_TC: Tensor,
    r_TC: Tensor,
    weights: QkvrWeights,
    k_history_QJC: Tensor,
    v_history_QJC: Tensor,
    starts: Sequence[int],
    tau_T: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """`q_TNH, rel_TNR`; keys and values are written to the slots of their tokens.

    keys_PLGH, values_PLGH: any strides but a contiguous last dimension. slots_T: int64; None is
    slot t for token t. Padding tokens write to no slot that is given, and zeros where none is.
    """
    num_tokens, width = q_TC.shape[0], weights.q_norm_H.shape[0]
    rel_dim, extent = weights.rel_proj_UR.shape
    heads, kv_heads = q_TC.shape[1] // width, k_TC.shape[1] // width
    packed = packing(starts, num_tokens, q_TC.device)
    q_TNH = q_TC.new_empty(num_tokens, heads, width)
    rel_TNR = q_TC.new_empty(num_tokens, heads, extent)
    rows = max(16, tile(num_tokens * heads, 32, 4096))
    tiles = triton.cdiv(num_tokens * heads, rows) + 2 * triton.cdiv(num_tokens * kv_heads, rows)
    launch(
        _prep_kernel, (tiles,),
        *(x.contiguous() for x in (q_TC, k_TC, v_TC, r_TC, k_history_QJC, v_history_QJC)),
        weights.k_conv_CW.contiguous(), weights.v_conv_CW.contiguous(),
        weights.q_norm_H, weights.k_norm_H, weights.rel_proj_UR.contiguous(),
        q_TC if tau_T is None else tau_T, *packed, packed.owner_T if slots_T is None else slots_T,
        q_TNH, keys_PLGH, values_PLGH, rel_TNR,
        num_tokens, heads, kv_heads, width, rel_dim, extent, keys_PLGH.shape[1],
        *keys_PLGH.stride()[:3], *values_PLGH.stride()[:3], eps,
        SCALED=tau_T is not None, PAGED=slots_T is not None, TAPS=weights.k_conv_CW.shape[1],
        ROWS=rows, COLUMNS=power_of_2(width), RELATIVE=power_of_2(rel_dim, 16),
        EXTENT=max(16, tile(extent, 128, 2048)),
    )  # fmt: skip
    return q_TNH, rel_TNR
