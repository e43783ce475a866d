"""Paged relative attention for a CPU; law: `inkling_core.ops.rel_attention`.

Not a kernel. Requests that bring one token (decode) are computed together, padded to the longest
visible span; requests that bring more go query block by query block, so that scores and bias never
exceed [N, QUERY_BLOCK, S]. A local layer gathers its window only.

NaN safety: a padded entry of the decode gather repeats the request's own newest key, so that no
value of another request, of a stale slot or of the null block is ever multiplied.

The bias of a query block is one strided copy: query t's logits by distance, reversed, are the row
of keys shifted by t, which is a diagonal band of a buffer with one more column per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from inkling_core.serving.paged_cache import slot_pool
from inkling_core.step import Step

QUERY_BLOCK = 64


def rel_attention(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    window: int | None,
) -> Tensor:
    """See `inkling_core.ops.rel_attention`: same arguments, same result."""
    out_TNH = torch.zeros_like(q_TNH)
    single = [q for q, length in enumerate(step.lengths) if length == 1]
    if single:
        rows_Q = torch.tensor([step.starts[q] for q in single])
        out_TNH[rows_Q] = _decode(
            q_TNH[rows_Q], rel_TNR[rows_Q], keys_PLGH, values_PLGH, step, single, window
        )
    for q, length in enumerate(step.lengths):
        if length > 1:
            _prefill(out_TNH, q_TNH, rel_TNR, keys_PLGH, values_PLGH, step, q, window)
    return out_TNH


def _decode(
    q_QNH: Tensor,
    rel_QNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    requests: list[int],
    window: int | None,
) -> Tensor:
    """One query per request, all requests in one batch."""
    span = _span(step, tuple(requests), window)
    kv_heads, head_dim = keys_PLGH.shape[2:]
    group = q_QNH.shape[1] // kv_heads
    k_QGSH = _gather(keys_PLGH, span.slots_QS)
    v_QGSH = _gather(values_PLGH, span.slots_QS)
    q_QGXH = q_QNH.float().unflatten(1, (kv_heads, group))
    scores_QNS = (q_QGXH @ k_QGSH.transpose(2, 3)).flatten(1, 2) / head_dim
    index_QNS = span.distance_QS.clamp(max=rel_QNR.shape[-1] - 1)[:, None].expand_as(scores_QNS)
    bias_QNS = rel_QNR.gather(-1, index_QNS).float()
    beyond_QS = span.distance_QS >= rel_QNR.shape[-1]
    scores_QNS += bias_QNS.masked_fill_(beyond_QS[:, None], 0.0)
    scores_QNS.masked_fill_(span.padding_QS[:, None], float("-inf"))
    probs_QNS = torch.softmax(scores_QNS, dim=-1).to(q_QNH.dtype).float()
    out_QGXH = probs_QNS.unflatten(1, (kv_heads, group)) @ v_QGSH
    return out_QGXH.flatten(1, 2).to(q_QNH.dtype)


@dataclass(frozen=True, eq=False)
class _Span:
    """Visible keys of decoding requests, padded to the longest.

    slots_QS: slots as `Step` counts them; distance_QS: to the query; padding_QS: True where the
    entry only fills up.
    """

    slots_QS: Tensor
    distance_QS: Tensor
    padding_QS: Tensor


@lru_cache(maxsize=2)  # of the newest step: one for local and one for global layers
def _span(step: Step, requests: tuple[int, ...], window: int | None) -> _Span:
    """Every layer asks; a step is its own key."""
    newest_Q = torch.tensor([step.contexts[q] for q in requests])
    first_Q = newest_Q * 0 if window is None else (newest_Q - window + 1).clamp(min=0)
    length = int((newest_Q - first_Q).max()) + 1
    positions_QS = first_Q[:, None] + torch.arange(length)
    padding_QS = positions_QS > newest_Q[:, None]
    positions_QS = torch.minimum(positions_QS, newest_Q[:, None])
    blocks_QS = step.block_table_QM[torch.tensor(requests)].gather(
        1, positions_QS // step.block_size
    )
    slots_QS = blocks_QS * step.block_size + positions_QS % step.block_size
    return _Span(slots_QS, newest_Q[:, None] - positions_QS, padding_QS)


def _gather(paged_PLGH: Tensor, slots_QS: Tensor) -> Tensor:
    """float32 [Q, G, S, H] of the given slots."""
    pool_SGH, slots_per_block = slot_pool(paged_PLGH)
    block_size = paged_PLGH.shape[1]
    index_QS = slots_QS + slots_QS // block_size * (slots_per_block - block_size)
    taken = pool_SGH.index_select(0, index_QS.flatten())
    return taken.view(*slots_QS.shape, *taken.shape[1:]).transpose(1, 2).float().contiguous()


def _prefill(
    out_TNH: Tensor,
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    q: int,
    window: int | None,
) -> None:
    """One request with several queries; fills its rows of `out_TNH`."""
    start, end, context = step.starts[q], step.starts[q + 1], step.contexts[q]
    first = 0 if window is None else max(0, context - window + 1)
    positions_S = torch.arange(first, context + end - start)
    blocks_S = step.block_table_QM[q, positions_S // step.block_size]
    slots_1S = (blocks_S * step.block_size + positions_S % step.block_size)[None]
    k_GSH, v_GSH = _gather(keys_PLGH, slots_1S)[0], _gather(values_PLGH, slots_1S)[0]
    for low in range(start, end, QUERY_BLOCK):
        high = min(low + QUERY_BLOCK, end)
        query = context + low - start  # position of the block's first query
        seen = 0 if window is None else max(0, query - window + 1 - first)
        last = query + high - low - first
        out_TNH[low:high] = _attend_block(
            q_TNH[low:high],
            rel_TNR[low:high],
            k_GSH[:, seen:last],
            v_GSH[:, seen:last],
            query - first - seen,
            window,
        )


def _attend_block(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    k_GSH: Tensor,
    v_GSH: Tensor,
    first_query: int,
    window: int | None,
) -> Tensor:
    """Token t sits at key index `first_query + t`; the last token at the last key."""
    num_tokens, num_heads, head_dim = q_TNH.shape
    kv_heads, num_keys = k_GSH.shape[:2]
    group = num_heads // kv_heads
    q_GRH = q_TNH.float().view(num_tokens, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    scores_GRS = q_GRH.reshape(kv_heads, group * num_tokens, head_dim) @ k_GSH.transpose(1, 2)
    scores_NTS = scores_GRS.view(num_heads, num_tokens, num_keys) / head_dim
    scores_NTS += _band(rel_TNR, first_query, num_keys)
    distance_TS = first_query + torch.arange(num_tokens)[:, None] - torch.arange(num_keys)
    hidden_TS = distance_TS < 0
    if window is not None:
        hidden_TS |= distance_TS >= window
    scores_NTS.masked_fill_(hidden_TS, float("-inf"))
    probs_NTS = torch.softmax(scores_NTS, dim=-1).to(q_TNH.dtype).float()
    out_GRH = probs_NTS.view(kv_heads, group * num_tokens, num_keys) @ v_GSH
    out_NTH = out_GRH.view(num_heads, num_tokens, head_dim)
    return out_NTH.transpose(0, 1).to(q_TNH.dtype)


def _band(rel_TNR: Tensor, first_query: int, num_keys: int) -> Tensor:
    """Bias `[N, T, S]` float32: rel[t, distance] inside the extent, zero elsewhere."""
    num_tokens, num_heads, extent = rel_TNR.shape
    left = max(0, extent - 1 - first_query)  # columns before key 0 that the band runs into
    width = left + num_keys
    buffer = torch.zeros(num_heads, num_tokens * width + num_tokens, dtype=torch.float32)
    offset = left + first_query - (extent - 1)
    band = buffer.as_strided(
        (num_heads, num_tokens, extent), (buffer.stride(0), width + 1, 1), offset
    )
    band.copy_(rel_TNR.flip(-1).transpose(0, 1))
    return buffer[:, : num_tokens * width].view(num_heads, num_tokens, width)[:, :, left:]
