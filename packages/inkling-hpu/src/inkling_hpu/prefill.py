"""Prefill: queries of a chunk over their keys, those near the chunk apart from those far from it.

    far     whole blocks before every bias of the chunk, all real       no mask
    edge    blocks behind them; those beyond `context - reach` hidden   mask [Q, 1, 128, KV]
    near    `reach` positions before the chunk | new tokens             mask [Q, N, S, KV]

Only keys at a distance below the extent (or the window) have a bias, and only near keys can be as
close as that, so the mask that differs by head and row is as wide as `near`, whatever the context.
What the edge hides is the same for every head and row: one mask serves all global layers of a step,
and queries are folded to blocks of 128 rows, so that it has no more. The parts are merged by
log-sum-exp (merge.py). Local layers have the near part alone. Near keys are fetched by slot, so
that their columns are consecutive positions and the bias needs no index (skew.py).

With the switch `near_far` off, or where its self-check failed, near is the whole context. Query
rows are cut into blocks whose mask fits the byte budget, with a graph break after each: a lazy
device accumulates everything until one, and masks of many layers do not fit together.

What it is not: the choice of the far blocks (`builders.build_prefill`), the cache write (this
step's keys are in the cache) or the kernels (`markers.fsdpa`, `markers.fsdpa_lse`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_hpu import markers
from inkling_hpu.bias import HIDDEN
from inkling_hpu.builders import reach_of
from inkling_hpu.merge import Part, merged
from inkling_hpu.skew import hidden, mask
from inkling_hpu.step import HpuStep, PrefillKeys
from inkling_hpu.switches import MASK_LIMIT

FOLD = 128
"""Query rows under the edge's mask."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's tensors: q [Q, N, S, H], rel [Q, N, S, R]; keys and values paged [P, L, G, H]."""

    q_QNSH: Tensor
    rel_QNSR: Tensor
    keys_PLGH: Tensor
    values_PLGH: Tensor
    window: int | None
    reach: int
    """Positions before the chunk that the near part holds."""

    @property
    def scale(self) -> float:
        """What scores are multiplied with."""
        return 1 / self.q_QNSH.shape[-1]


def attend(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: HpuStep,
    window: int | None,
) -> Tensor:
    """See `ops.rel_attention`."""
    reach = near_reach(step, window, rel_TNR.shape[-1])
    q_QNSH, rel_QNSR = _by_head(q_TNH, step.num_rows), _by_head(rel_TNR, step.num_rows)
    layer = Layer(q_QNSH, rel_QNSR, keys_PLGH, values_PLGH, window, reach)
    parts = distant_parts(layer, step) if window is None else []
    out_QNSH = merged([*parts, near_part(layer, step, with_lse=bool(parts))])
    return out_QNSH.transpose(1, 2).flatten(0, 1)


def near_reach(step: HpuStep, window: int | None, extent: int) -> int:
    """Positions before the chunk that are near: all that have a bias, in whole blocks; the whole
    context where a switch says so."""
    keys, switches = _keys(step), step.switches
    split = switches.near_far if window is None else switches.local_window_prefill
    everything = (keys.far_QF.shape[1] + keys.blocks_QM.shape[1]) * step.block_size
    return min(reach_of(window or extent, step.block_size), everything) if split else everything


# ---- near ----------------------------------------------------------------------------------------


def near_part(layer: Layer, step: HpuStep, with_lse: bool) -> Part:
    """Attention over the near keys, in query blocks; lse is empty where it was not asked for."""
    reach = layer.reach
    slots_QK = step.once(("near slots", reach), lambda: near_slots(step, reach))
    k_QGKH, v_QGKH = (_by_slot(paged, slots_QK) for paged in (layer.keys_PLGH, layer.values_PLGH))
    parts: list[Part] = []
    for rows in query_blocks(step, reach, layer.rel_QNSR):
        first, last = rows
        rel_QNSR = layer.rel_QNSR[:, :, first:last]
        mask_QNSK = mask(rel_QNSR, reach + first, _hidden(layer, step, rows))
        arguments = (
            layer.q_QNSH[:, :, first:last],
            k_QGKH[:, :, : reach + last],  # later columns are the future of all rows of the block
            v_QGKH[:, :, : reach + last],
            mask_QNSK,
            layer.scale,
        )
        if with_lse:
            parts.append(markers.fsdpa_lse(*arguments))
        else:
            out = markers.fsdpa(*arguments)
            parts.append((out, out.new_empty(0)))
        markers.end_graph()
    if len(parts) == 1:
        return parts[0]
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs, dim=2), torch.cat(lses, dim=-1)


def near_slots(step: HpuStep, reach: int) -> Tensor:
    """int64 [Q, reach + S] cache slot of each near key; any slot of the row's own blocks for
    positions below 0."""
    keys, size = _keys(step), step.block_size
    new_QS = step.slots_T.unflatten(0, (step.num_rows, -1))
    if not reach:
        return new_QS
    past_QK = keys.contexts_Q[:, None] + torch.arange(-reach, 0, device=new_QS.device)
    blocks_QK = keys.every_QB.gather(1, (past_QK // size).clamp(min=0))
    return torch.cat([blocks_QK * size + past_QK % size, new_QS], dim=1)


def query_blocks(step: HpuStep, reach: int, rel_QNSR: Tensor) -> list[tuple[int, int]]:
    """(first, last + 1) query rows of each block: a power of two of them; the mask, the lines that
    it is cut from and what it hides are within the budget. ValueError where not even one row stays
    below the kernel's limit."""
    heads, columns = rel_QNSR.shape[1], reach + step.row_length
    item = step.num_rows * columns * rel_QNSR.element_size()
    if heads * item > MASK_LIMIT:
        raise ValueError(
            f"one query row over {columns} key columns in {step.num_rows} rows and {heads} "
            f"heads needs a mask of {heads * item} bytes, the kernel takes {MASK_LIMIT}: prefill "
            "fewer requests at once or shorten max_model_len"
        )
    fitting = max(1, step.switches.mask_bytes // (2 * heads * item + item))
    rows = min(step.row_length, 1 << (fitting.bit_length() - 1))
    return [
        (first, min(first + rows, step.row_length)) for first in range(0, step.row_length, rows)
    ]


def _hidden(layer: Layer, step: HpuStep, rows: tuple[int, int]) -> Tensor:
    """See `skew.hidden`; kept for the step where all blocks together are within the budget."""
    window, reach, dtype = layer.window, layer.reach, layer.rel_QNSR.dtype

    def make() -> Tensor:
        return hidden(_keys(step).contexts_Q, rows, reach, window, dtype)

    everything = step.positions_T.shape[0] * (reach + step.row_length) * dtype.itemsize
    if everything > step.switches.mask_bytes:
        return make()
    return step.once(("hidden", window, reach, rows, dtype), make)


# ---- far and edge --------------------------------------------------------------------------------


def distant_parts(layer: Layer, step: HpuStep) -> list[Part]:
    """Attention over the keys before the near ones; none where the bucket has no such blocks."""
    keys = _keys(step)
    num_edge = keys.blocks_QM.shape[1] - layer.reach // step.block_size
    parts: list[Part] = []
    if keys.far_QF.shape[1] and step.switches.near_far:
        k, v = _by_block(layer, keys.far_QF)
        parts.append(markers.fsdpa_lse(layer.q_QNSH, k, v, None, layer.scale))
    if num_edge > 0:
        k, v = _by_block(layer, keys.blocks_QM[:, :num_edge])
        q = folded(layer.q_QNSH)
        shape = (num_edge, q.shape[2], layer.rel_QNSR.dtype)
        hides = step.once(("edge", *shape), lambda: edge_mask(step, layer.reach, *shape))
        out, lse = markers.fsdpa_lse(q, k, v, hides, layer.scale)
        parts.append((unfolded(out, layer.q_QNSH), unfolded(lse, layer.q_QNSH)))
    return parts


def edge_mask(step: HpuStep, reach: int, num_edge: int, rows: int, dtype: torch.dtype) -> Tensor:
    """`[Q, 1, rows, num_edge * L]`, all rows alike: HIDDEN from position `context - reach` on, what
    is near or bucket padding."""
    keys, size = _keys(step), step.block_size
    position_K = torch.arange(num_edge * size, device=keys.contexts_Q.device)
    position_K = position_K + keys.far_QF.shape[1] * size
    unseen_QK = position_K >= keys.contexts_Q[:, None] - reach
    mask_Q1K = unseen_QK.to(dtype)[:, None] * HIDDEN
    return mask_Q1K.repeat(1, rows, 1)[:, None]


def folded(q_QNSH: Tensor) -> Tensor:
    """`[Q, N * S / 128, 128, H]`, rows padded to whole blocks; shorter chunks as they are."""
    length = q_QNSH.shape[2]
    if length <= FOLD:
        return q_QNSH
    return F.pad(q_QNSH, (0, 0, 0, -length % FOLD)).unflatten(2, (-1, FOLD)).flatten(1, 2)


def unfolded(x: Tensor, q_QNSH: Tensor) -> Tensor:
    """`[Q, N * S / 128, 128, ...]` -> `[Q, N, S, ...]`."""
    heads, length = q_QNSH.shape[1:3]
    return x.unflatten(1, (heads, -1)).flatten(2, 3)[:, :, :length]


# ---- keys ----------------------------------------------------------------------------------------


def _keys(step: HpuStep) -> PrefillKeys:
    assert isinstance(step.keys, PrefillKeys)  # rel_attention has looked
    return step.keys


def _by_slot(paged_PLGH: Tensor, slots_QK: Tensor) -> Tensor:
    """`[Q, G, K, H]` of the slots."""
    rows = paged_PLGH.flatten(0, 1).index_select(0, slots_QK.flatten())
    return rows.unflatten(0, slots_QK.shape).transpose(1, 2)


def _by_block(layer: Layer, blocks_QM: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values `[Q, G, M * L, H]` of the blocks."""
    k, v = (
        paged.index_select(0, blocks_QM.flatten()).flatten(0, 1)
        for paged in (layer.keys_PLGH, layer.values_PLGH)
    )
    rows = (len(blocks_QM), -1)
    return k.unflatten(0, rows).transpose(1, 2), v.unflatten(0, rows).transpose(1, 2)


def _by_head(x_TNX: Tensor, num_rows: int) -> Tensor:
    """`[Q * S, N, X]` -> `[Q, N, S, X]`."""
    return x_TNX.unflatten(0, (num_rows, -1)).transpose(1, 2)
