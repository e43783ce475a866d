"""Prefill: queries of a chunk over context columns and new columns, one additive mask per head.

    keys of row q    context blocks, gathered [m * L]   |   new tokens [S]
    column c         first * L + c                      |   context + (c - m * L)

Columns are placed by ABSOLUTE position: where a context is no multiple of L, its last block is
partial and the new tokens behind it stand in that block too; those columns (position >= context)
are hidden, because the same tokens follow as new columns. The kernel takes no lengths beside a
mask, so the mask [Q, N, Sq, KV] holds bias, causality, window and padding at once.

Query rows are cut into blocks whose mask and index fit the byte budget, with a graph break after
each: a lazy device accumulates everything until one, and masks of many layers do not fit together.
Local layers fetch the last blocks of the context only (`Switches.local_window_prefill`): the
first query of the chunk sees `window - 1` positions before it.

What it is not: the cache write (this step's keys are in the cache) or the kernel (`markers.fsdpa`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_hpu import bias as relative
from inkling_hpu import markers
from inkling_hpu.builders import touched_blocks
from inkling_hpu.step import HpuStep, PrefillKeys
from inkling_hpu.switches import MASK_LIMIT

NOWHERE = 2**30
"""Position of a key that nobody sees: later than any query, and within 32 bits, because the device
keeps no more of an int64 unless it is told to."""

INDEX_BYTES = 8  # the gather that makes a mask takes int64


@dataclass(frozen=True, eq=False)
class KeyColumns:
    """What all layers of one kind share in a prefill step.

    blocks_R: int64 [Q * m] context blocks to fetch, m per row.
    num_context: m * L.
    positions_QK: int64 [Q, m * L + S] absolute position of each column, NOWHERE in padding.
    """

    blocks_R: Tensor
    num_context: int
    positions_QK: Tensor


def attend(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: HpuStep,
    window: int | None,
) -> Tensor:
    """See `ops.rel_attention`."""
    columns = step.once(("columns", window), lambda: key_columns(step, window))
    k_QGKH = _gather(keys_PLGH, columns, step)
    v_QGKH = _gather(values_PLGH, columns, step)
    q_QNSH = _by_head(q_TNH, step.num_rows)
    tail = step.once(("tail", rel_TNR.dtype), lambda: relative.tail(rel_TNR.dtype, q_TNH.device))
    table_QNSR = _by_head(relative.table(rel_TNR, tail), step.num_rows)
    outs = []
    for first, last in query_blocks(step, columns.positions_QK.shape[1], table_QNSR):
        visible = columns.num_context + last  # new columns behind the block's last row are future
        index_QSK = _index(step, columns, window, rel_TNR.shape[-1], (first, last), visible)
        mask_QNSK = table_QNSR[:, :, first:last].gather(
            -1, index_QSK[:, None].expand(-1, table_QNSR.shape[1], -1, -1)
        )
        outs.append(
            markers.fsdpa(
                q_QNSH[:, :, first:last],
                k_QGKH[:, :, :visible],
                v_QGKH[:, :, :visible],
                mask_QNSK,
                1 / q_TNH.shape[-1],
            )
        )
        markers.end_graph()
    out_QNSH = outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)
    return out_QNSH.transpose(1, 2).flatten(0, 1)


def key_columns(step: HpuStep, window: int | None) -> KeyColumns:
    """Which context blocks a layer kind fetches, and where every column stands."""
    assert isinstance(step.keys, PrefillKeys)  # rel_attention has looked
    keys, size = step.keys, step.block_size
    context_Q1 = keys.contexts_Q[:, None]
    blocks_QM = keys.blocks_QM
    first_Q1 = torch.zeros_like(context_Q1)
    if window is not None and step.switches.local_window_prefill:
        count = min(context_reach(window, size), blocks_QM.shape[1])
        used_Q1 = (context_Q1 + size - 1) // size
        first_Q1 = (used_Q1 - count).clamp(min=0)
        blocks_QM = blocks_QM.gather(1, first_Q1 + torch.arange(count, device=first_Q1.device))
    num_context = blocks_QM.shape[1] * size
    past_QK = first_Q1 * size + torch.arange(num_context, device=first_Q1.device)
    past_QK = torch.where(past_QK < context_Q1, past_QK, NOWHERE)
    new_S = torch.arange(step.row_length, device=first_Q1.device)
    new_QS = torch.where(new_S < keys.lengths_Q[:, None], context_Q1 + new_S, NOWHERE)
    return KeyColumns(blocks_QM.flatten(), num_context, torch.cat([past_QK, new_QS], dim=1))


def context_reach(window: int, block_size: int) -> int:
    """Most context blocks that hold one of the `window - 1` positions before a chunk."""
    return touched_blocks(window - 1, block_size) if window > 1 else 0


def query_blocks(step: HpuStep, num_columns: int, table_QNSR: Tensor) -> list[tuple[int, int]]:
    """(first, last + 1) query rows of each block: a power of two of them, mask and index within
    the budget. ValueError where not even one row stays below the kernel's limit."""
    heads = table_QNSR.shape[1]
    mask_bytes = step.num_rows * num_columns * heads * table_QNSR.element_size()
    if mask_bytes > MASK_LIMIT:
        raise ValueError(
            f"one query row over {num_columns} key columns in {step.num_rows} rows and {heads} "
            f"heads needs a mask of {mask_bytes} bytes, the kernel takes {MASK_LIMIT}: prefill "
            "fewer requests at once or shorten max_model_len"
        )
    row_bytes = mask_bytes + step.num_rows * num_columns * INDEX_BYTES
    fitting = max(1, step.switches.mask_bytes // row_bytes)
    rows = min(step.row_length, 1 << (fitting.bit_length() - 1))
    return [
        (first, min(first + rows, step.row_length)) for first in range(0, step.row_length, rows)
    ]


def _index(
    step: HpuStep,
    columns: KeyColumns,
    window: int | None,
    extent: int,
    rows: tuple[int, int],
    visible: int,
) -> Tensor:
    """int64 [Q, Sq, KV] bias column of each pair; kept for the step where all of them together
    stay within the budget."""

    def make() -> Tensor:
        assert isinstance(step.keys, PrefillKeys)
        new_S = torch.arange(*rows, device=columns.positions_QK.device)
        query_QS1 = (step.keys.contexts_Q[:, None] + new_S)[:, :, None]
        distance_QSK = query_QS1 - columns.positions_QK[:, None, :visible]
        return relative.columns(distance_QSK, distance_QSK >= 0, extent, window)

    everything = columns.positions_QK.numel() * step.row_length * INDEX_BYTES
    if everything > step.switches.mask_bytes:
        return make()
    return step.once(("prefill index", window, extent, rows), make)


def _gather(paged_PLGH: Tensor, columns: KeyColumns, step: HpuStep) -> Tensor:
    """`[Q, G, m * L + S, H]`: context blocks in front of the step's own tokens."""
    new = paged_PLGH.flatten(0, 1).index_select(0, step.slots_T).unflatten(0, (step.num_rows, -1))
    if columns.num_context:
        past = paged_PLGH.index_select(0, columns.blocks_R).flatten(0, 1)
        new = torch.cat([past.unflatten(0, (step.num_rows, -1)), new], dim=1)
    return new.transpose(1, 2)


def _by_head(x_TNX: Tensor, num_rows: int) -> Tensor:
    """`[Q * S, N, X]` -> `[Q, N, S, X]`."""
    return x_TNX.unflatten(0, (num_rows, -1)).transpose(1, 2)
