"""Decode on local layers: the last blocks of each request as one rectangle, one masked SDPA.

    keys of row q   M blocks, from the first of its window's list:  column c, M * L of them
    distance        d[q, c] = (newest % L) + (listed - 1) * L - c        listed = entries of row q
    mask [B, N, 1, M * L]   one gather from the row's logits, padded with a hidden column each side
                            column 0: d < 0, the future      column W + 1: d >= W, out of sight

One distance serves every kind of column that must not be seen: entries behind the newest block and
keys behind the new token lie in the future, so padding needs no mask of its own.

What it is not: attention over all blocks of a request (`decode`), whose rows differ in length by
far more than a window, or the lists (`builders.window_list`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_hpu import markers
from inkling_hpu.bias import HIDDEN
from inkling_hpu.step import DecodeKeys, HpuStep


def attend(
    q_BNH: Tensor,
    rel_BNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: HpuStep,
    window: int,
) -> Tensor:
    """See `ops.rel_attention`."""
    heads, head_dim = q_BNH.shape[1:]
    index_BNK = step.once(("local index", window, heads), lambda: _index(step, heads, window))
    mask_BNK = _table(rel_BNR, window).flatten().index_select(0, index_BNK.flatten())
    assert isinstance(step.keys, DecodeKeys)  # rel_attention has looked
    blocks_P = step.keys.window.blocks_P
    out_BN1H = markers.fsdpa(
        q_BNH[:, :, None],
        _gather(keys_PLGH, blocks_P, step.num_rows),
        _gather(values_PLGH, blocks_P, step.num_rows),
        mask_BNK.view(*index_BNK.shape[:2], 1, -1),
        1 / head_dim,
    )
    return out_BN1H[:, :, 0]


def _table(rel_BNR: Tensor, window: int) -> Tensor:
    """`[B, N, window + 2]`: HIDDEN | a logit per distance, 0 beyond the extent | HIDDEN."""
    seen = rel_BNR[..., :window]
    if seen.shape[-1] < window:
        seen = F.pad(seen, (0, window - seen.shape[-1]))
    return F.pad(seen, (1, 1), value=HIDDEN)


def _index(step: HpuStep, heads: int, window: int) -> Tensor:
    """int64 [B, N, M * L] into the flattened table of all rows and heads."""
    assert isinstance(step.keys, DecodeKeys)
    groups_BM = step.keys.window.groups_P.view(step.num_rows, -1)
    size, device = step.block_size, groups_BM.device
    listed_B = (groups_BM >= 0).sum(1)
    newest_B = torch.add(step.positions_T % size, listed_B, alpha=size)
    column_K = torch.arange(size, size * (groups_BM.shape[1] + 1), device=device)
    distance_BK = (newest_B[:, None] - column_K).clamp(-1, window)
    rows = step.num_rows * heads
    first_R = torch.arange(1, 1 + rows * (window + 2), window + 2, device=device)
    return first_R.view(-1, heads, 1) + distance_BK[:, None]


def _gather(paged_PLGH: Tensor, blocks_P: Tensor, num_rows: int) -> Tensor:
    """`[B, G, M * L, H]`."""
    rows = paged_PLGH.index_select(0, blocks_P).unflatten(0, (num_rows, -1))
    return rows.flatten(1, 2).transpose(1, 2)
