"""Relative attention over paged keys, online softmax; law: `inkling_core.ops.rel_attention`.

Not the cache. One program computes ROWS packed rows (queries x the heads of a group,
`attention_plan`) against a range of keys, KEYS at a time:

    score = (q . k) / H + (rel[distance] if distance < R else 0)      base 2 inside, float32
    m, l, acc = running maximum, sum and weighted values

The bias is read inside the kernel from the row's own R logits, by distance: a band, and no tensor
of tokens x tokens exists. Decoding over a long context leaves parts (acc, m, l) that
`_merge_kernel` adds up. Slots outside a request's visible range are never read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_core.step import Step
from inkling_cuda_ref.attention_plan import plan
from inkling_cuda_ref.storage import (
    device,
    edge,
    launch,
    multiplied,
    operand,
    power_of_2,
    stored,
    tile,
)

LOG2_E = tl.constexpr(1.4426950408889634)
KEYS_PER_PART = 1024  # of a decoding request: enough programs to fill a GPU at long contexts


@device
def _slot_offsets(
    table_ptr, table_width, request, key, there, block_size, block_stride, slot_stride
):
    """int64 `[KEYS]`: where the slot of each key position begins, by the request's block table."""
    entry = table_ptr + request * table_width + key // block_size
    block = tl.load(entry, mask=there, other=0).to(tl.int64)
    return block * block_stride + key % block_size * slot_stride


@device
def _scores(
    q,
    k,
    rel_ptr,
    query_row,
    position,
    key,
    there,
    real,
    near,
    scale,
    extent,
    window,
    WINDOWED: tl.constexpr,
    WIDE: tl.constexpr,
):
    """float32 `[ROWS, KEYS]` in base 2: scaled product, bias by distance, -inf where hidden."""
    distance = position[:, None] - key[None, :]
    score = tl.dot(q, operand(k, WIDE), input_precision="ieee") * scale
    if near:  # some key lies inside the band of some row
        banded = (distance >= 0) & (distance < extent) & real[:, None]
        rel = tl.load(rel_ptr + query_row[:, None] * extent + distance, mask=banded, other=0.0)
        score += rel.to(tl.float32) * LOG2_E
    visible = (distance >= 0) & there[None, :]
    if WINDOWED:
        visible = visible & (distance < window)
    return tl.where(visible, score, float("-inf"))


@device
def _added(score, v, top, total, acc, dtype: tl.constexpr, WIDE: tl.constexpr):
    """Running maximum, sum and weighted values, with one more tile of keys."""
    highest = tl.maximum(top, tl.max(score, axis=1))
    # a row that has seen no key yet has no maximum to subtract
    base = tl.where(highest == float("-inf"), 0.0, highest)
    weight, kept = tl.exp2(score - base[:, None]), tl.exp2(top - base)
    total = total * kept + tl.sum(weight, axis=1)
    weight = multiplied(weight, dtype, WIDE)
    acc = acc * kept[:, None] + tl.dot(weight, operand(v, WIDE), input_precision="ieee")
    return highest, total, acc


@triton.jit
def _attend_kernel(
    q_ptr, rel_ptr, keys_ptr, values_ptr, table_ptr, items_ptr, requests_ptr,
    out_ptr, top_ptr, total_ptr,
    heads, group, width, extent, window, scale, table_width, block_size,
    k_block_stride, k_slot_stride, k_head_stride, v_block_stride, v_slot_stride, v_head_stride,
    WINDOWED: tl.constexpr, PARTIAL: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = q_ptr.dtype.element_ty
    item, kv_head = tl.program_id(0), tl.program_id(1)
    request, first_row = tl.load(items_ptr + item * 4), tl.load(items_ptr + item * 4 + 1)
    low, high = tl.load(items_ptr + item * 4 + 2), tl.load(items_ptr + item * 4 + 3)
    start = tl.load(requests_ptr + request * 3).to(tl.int64)
    context = tl.load(requests_ptr + request * 3 + 1)
    row = first_row + tl.arange(0, ROWS)
    real = row < tl.load(requests_ptr + request * 3 + 2) * group
    position = context + row // group
    query_row = (start + row // group) * heads + kv_head * group + row % group
    column = tl.arange(0, COLUMNS)
    known = column < width
    inside = real[:, None] & known[None, :]
    q = tl.load(q_ptr + query_row[:, None] * width + column[None, :], mask=inside, other=0.0)
    q = operand(q, WIDE)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    acc = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for first in range(low, high, KEYS):
        key = first + tl.arange(0, KEYS)
        there = key < high
        k_row = kv_head * k_head_stride + _slot_offsets(
            table_ptr, table_width, request, key, there, block_size, k_block_stride, k_slot_stride
        )
        v_row = kv_head * v_head_stride + _slot_offsets(
            table_ptr, table_width, request, key, there, block_size, v_block_stride, v_slot_stride
        )
        read = there[:, None] & known[None, :]
        k = tl.load(keys_ptr + k_row[:, None] + column[None, :], mask=read, other=0.0)
        v = tl.load(values_ptr + v_row[:, None] + column[None, :], mask=read, other=0.0)
        near = context + first_row // group - first - KEYS < extent
        score = _scores(
            q, tl.trans(k), rel_ptr, query_row, position, key, there, real, near, scale, extent,
            window, WINDOWED, WIDE,
        )  # fmt: skip
        top, total, acc = _added(score, v, top, total, acc, dtype, WIDE)
    if PARTIAL:
        part_row = (item * tl.num_programs(1) + kv_head).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        tl.store(out_ptr + part_row[:, None] * width + column[None, :], acc, mask=inside)
        tl.store(top_ptr + part_row, top, mask=real)
        tl.store(total_ptr + part_row, total, mask=real)
    else:
        out = stored(acc / tl.where(real, total, 1.0)[:, None], dtype, WIDE)
        tl.store(out_ptr + query_row[:, None] * width + column[None, :], out, mask=inside)


@triton.jit
def _merge_kernel(
    part_ptr,
    top_ptr,
    total_ptr,
    tiles_ptr,
    requests_ptr,
    out_ptr,
    heads,
    group,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The parts of a tile, weighted by their log-sum-exp, into its rows of the output."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    tile_index, kv_head = tl.program_id(0), tl.program_id(1)
    request = tl.load(tiles_ptr + tile_index * 4)
    row = tl.load(tiles_ptr + tile_index * 4 + 1) + tl.arange(0, ROWS)
    start = tl.load(requests_ptr + request * 3).to(tl.int64)
    real = row < tl.load(requests_ptr + request * 3 + 2) * group
    column = tl.arange(0, COLUMNS)
    inside = real[:, None] & (column < width)[None, :]
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    acc = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    first, last = tl.load(tiles_ptr + tile_index * 4 + 2), tl.load(tiles_ptr + tile_index * 4 + 3)
    for item in range(first, last):
        part_row = (item * tl.num_programs(1) + kv_head) * ROWS + tl.arange(0, ROWS).to(tl.int64)
        part = tl.load(
            part_ptr + part_row[:, None] * width + column[None, :], mask=inside, other=0.0
        )
        part_top = tl.load(top_ptr + part_row, mask=real, other=float("-inf"))
        part_total = tl.load(total_ptr + part_row, mask=real, other=0.0)
        highest = tl.maximum(top, part_top)
        base = tl.where(highest == float("-inf"), 0.0, highest)
        kept, added = tl.exp2(top - base), tl.exp2(part_top - base)
        acc = acc * kept[:, None] + part * added[:, None]
        total = total * kept + part_total * added
        top = highest
    out = stored(acc / tl.where(real, total, 1.0)[:, None], dtype, WIDE)
    query_row = (start + row // group) * heads + kv_head * group + row % group
    tl.store(out_ptr + query_row[:, None] * width + column[None, :], out, mask=inside)


def rel_attention(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    window: int | None,
) -> Tensor:
    """See `inkling_core.ops.rel_attention`: same arguments, same result."""
    q_TNH, rel_TNR = q_TNH.contiguous(), rel_TNR.contiguous()
    heads, width, kv_heads = q_TNH.shape[1], q_TNH.shape[2], keys_PLGH.shape[2]
    group = heads // kv_heads
    longest = max(step.lengths) * group
    rows = tile(longest, 64, 256) if longest > 16 else 16
    work = plan(step, window, group, rows, KEYS_PER_PART)
    out_TNH = torch.empty_like(q_TNH)
    out_TNH[step.num_tokens :] = 0
    shape = (work.num_parts, kv_heads, rows)
    part = torch.empty(*shape, width, dtype=torch.float32, device=q_TNH.device)
    top, total = (torch.empty(shape, dtype=torch.float32, device=q_TNH.device) for _ in range(2))
    sizes = {"ROWS": rows, "COLUMNS": power_of_2(width, 16)}

    def attend(items: Tensor, out: Tensor, partial: bool) -> None:
        launch(
            _attend_kernel, (len(items), kv_heads), q_TNH, rel_TNR, keys_PLGH, values_PLGH,
            step.block_table_QM.contiguous(), items, work.requests, out, top, total,
            heads, group, width, rel_TNR.shape[-1], window or 0, LOG2_E.value / width,
            step.block_table_QM.shape[1], keys_PLGH.shape[1], *keys_PLGH.stride()[:3],
            *values_PLGH.stride()[:3], WINDOWED=window is not None, PARTIAL=partial,
            KEYS=edge(64, 512), **sizes,
        )  # fmt: skip

    attend(work.items[: work.num_whole], out_TNH, False)
    attend(work.items[work.num_whole :], part, True)
    launch(
        _merge_kernel, (len(work.tiles), kv_heads), part, top, total, work.tiles,
        work.requests, out_TNH, heads, group, width, **sizes,
    )  # fmt: skip
    return out_TNH
