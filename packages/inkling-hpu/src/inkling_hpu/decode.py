"""Decode: one query per request over a flat list of key blocks, bias in the position-bias slot.

    bias [P, N, L]   per list entry, query head and offset in the block
    out[q] = sum over entries of q of exp(score - top[q]) @ v / the same without v

List entries name their request (`groups_P`), never their position. Where an entry's keys stand
follows from its ordinal: entries of one request lie in order of position and the last is the block
of the new token, so an entry with m later ones of its request starts at position
(newest // L - m) * L. That holds for lists of any truncation, hence for windows, and reads physical
ids for nothing but the gather: scattered and shared blocks need no care. Ordinals come from a
membership mask, since scatter_reduce has no kernel on this device.

What it is not: the lists (`builders.block_list`) or the cache writes. An engine's own paged
attention may stand in for ours: see `kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_hpu import bias as relative
from inkling_hpu import markers
from inkling_hpu.step import BlockList, DecodeKeys, HpuStep

kernel: Callable[[Tensor, Tensor, Tensor, DecodeIndex, Tensor], Tensor] | None = None
"""Paged attention of an engine, with the arguments of `paged_attention`; None: ours runs."""


@dataclass(frozen=True, eq=False)
class DecodeIndex:
    """What all layers of one kind (global or local) share in a decode step.

    blocks_P: int64 [P] blocks to fetch.
    groups_P: int64 [P] row that owns the entry, -1 in padding.
    owners_P: int64 [P] row that owns the entry; 0 in padding, where everything is hidden.
    member_BP: float32 [B, P] one where the row owns the entry.
    mapping_BP: the same in the model dtype.
    foreign_PB1: float32 [P, B, 1] HIDDEN where the row does not own the entry.
    idle_B1: float32 [B, 1] one in rows that own nothing, whose sum would be zero.
    columns_PL: int64 [P, L] bias column of each key (see `bias`).
    """

    blocks_P: Tensor
    groups_P: Tensor
    owners_P: Tensor
    member_BP: Tensor
    mapping_BP: Tensor
    foreign_PB1: Tensor
    idle_B1: Tensor
    columns_PL: Tensor


def attend(
    q_BNH: Tensor,
    rel_BNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: HpuStep,
    window: int | None,
) -> Tensor:
    """See `ops.rel_attention`."""
    heads, extent = rel_BNR.shape[1:]
    index = step.once(
        ("decode", window, extent), lambda: decode_index(step, extent, window, q_BNH.dtype)
    )
    flat_PNL = step.once(
        ("decode bias", window, extent, heads), lambda: _flat_index(index, heads, extent)
    )
    tail = step.once(("tail", torch.float32), lambda: relative.tail(torch.float32, q_BNH.device))
    table_BNR = relative.table(rel_BNR, tail)  # float32 by promotion
    bias_PNL = table_BNR.flatten().index_select(0, flat_PNL.flatten()).view(flat_PNL.shape)
    attention = kernel or paged_attention
    return attention(q_BNH, keys_PLGH, values_PLGH, index, bias_PNL)


def paged_attention(
    q_BNH: Tensor, keys_PLGH: Tensor, values_PLGH: Tensor, index: DecodeIndex, bias_PNL: Tensor
) -> Tensor:
    """Softmax over the keys of all list entries of a request, one pass over the list.

    Args:
        q_BNH: queries, not yet divided by H.
        keys_PLGH, values_PLGH: paged cache of the layer.
        index: of the list.
        bias_PNL: float32, added to the scores; carries every mask.

    Returns:
        `[B, N, H]` in the dtype of `q_BNH`; zeros in rows without an entry.
    """
    heads, head_dim = q_BNH.shape[1:]
    kv_heads = keys_PLGH.shape[2]
    q_PNH = (q_BNH * (1 / head_dim)).index_select(0, index.owners_P)
    k_PLGH = keys_PLGH.index_select(0, index.blocks_P)
    v_PLGH = values_PLGH.index_select(0, index.blocks_P)
    q_PGXH = q_PNH.unflatten(1, (kv_heads, heads // kv_heads))
    scores_PNL = (q_PGXH @ k_PLGH.permute(0, 2, 3, 1)).flatten(1, 2) + bias_PNL
    # One reference point for all entries of a request, so that they add without rescaling.
    top_BN = (scores_PNL.amax(-1)[:, None] + index.foreign_PB1).amax(0)
    weights_PNL = torch.exp(scores_PNL - top_BN.index_select(0, index.owners_P)[:, :, None])
    weights_PGXL = weights_PNL.to(q_BNH.dtype).unflatten(1, (kv_heads, heads // kv_heads))
    out_PNH = (weights_PGXL @ v_PLGH.transpose(1, 2)).flatten(1)
    sum_BN = torch.addmm(index.idle_B1, index.member_BP, weights_PNL.sum(-1))
    out_BNH = markers.mm_f32(index.mapping_BP, out_PNH.T).unflatten(1, (heads, head_dim))
    return (out_BNH / sum_BN[:, :, None]).to(q_BNH.dtype)


def decode_index(step: HpuStep, extent: int, window: int | None, dtype: torch.dtype) -> DecodeIndex:
    """Index math of one layer kind; tensors only, no shape depends on data."""
    assert isinstance(step.keys, DecodeKeys)  # rel_attention has looked
    listed = step.keys.every if window is None else step.keys.window
    device = listed.groups_P.device
    member_PB = listed.groups_P[:, None] == torch.arange(step.num_rows, device=device)
    first_PL = key_positions(listed, member_PB, step.positions_T, step.block_size)
    query_P1 = torch.where(member_PB, step.positions_T, 0).sum(1, keepdim=True)
    owned_P1 = member_PB.any(1, keepdim=True)
    member_BP = member_PB.T.float()
    return DecodeIndex(
        blocks_P=listed.blocks_P,
        groups_P=listed.groups_P,
        owners_P=listed.groups_P.clamp(min=0),
        member_BP=member_BP,
        mapping_BP=member_BP.to(dtype),
        foreign_PB1=(1 - member_BP.T[:, :, None]) * relative.HIDDEN,
        idle_B1=1 - member_BP.amax(1, keepdim=True),
        columns_PL=relative.columns(query_P1 - first_PL, owned_P1, extent, window),
    )


def key_positions(
    listed: BlockList, member_PB: Tensor, positions_B: Tensor, block_size: int
) -> Tensor:
    """int64 [P, L]: absolute position of each key of each entry (anything in padding)."""
    order_P = torch.arange(len(listed.groups_P), device=positions_B.device)
    last_B = torch.where(member_PB, order_P[:, None], -1).amax(0)
    later_PB = last_B - order_P[:, None]
    block_PB = torch.where(member_PB, positions_B // block_size - later_PB, 0)
    start_P1 = block_PB.sum(1, keepdim=True) * block_size
    return start_P1 + torch.arange(block_size, device=positions_B.device)


def _flat_index(index: DecodeIndex, heads: int, extent: int) -> Tensor:
    """int64 [P, N, L] into the flattened table `[B, N, R + 2]`."""
    head_N1 = torch.arange(heads, device=index.owners_P.device)[:, None]
    row_PN1 = index.owners_P[:, None, None] * heads + head_N1
    return row_PN1 * (extent + 2) + index.columns_PL[:, None]
