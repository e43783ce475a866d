"""Causal attention with a learned logit per head and backward distance, over paged keys.

Not the cache (`kv_cache` writes it) and not the preparation (`qkvr_prep`). For query position p
and key position s at distance d = p - s:

    score = (q . k) / H + (rel[d] if d < R else 0)        1/H, not 1/sqrt(H); no rotary embedding
    allowed: 0 <= d, and d < window on local layers (the window includes the query itself)
    out = softmax(score) @ v                              softmax float32, cast to the query dtype

Query head n reads key/value head n // (N / G).
"""

import torch
from torch import Tensor

from inkling_core.step import Step


def rel_attention(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    keys_PLGH: Tensor,
    values_PLGH: Tensor,
    step: Step,
    window: int | None,
) -> Tensor:
    """Attends from every packed token to its request's cached keys, its own included.

    Args:
        q_TNH: normalised queries, already scaled by tau.
        rel_TNR: relative logits by backward distance, already scaled by tau.
        keys_PLGH: paged keys of this layer; this step's keys are written.
        values_PLGH: paged values.
        step: which tokens belong to which request, and the blocks of each.
        window: number of visible keys on a local layer, None on a global one.

    Returns:
        `[T, N, H]` in the dtype of `q_TNH`; padding rows are zeros.
    """
    out_TNH = torch.zeros_like(q_TNH)
    for q, context in enumerate(step.contexts):
        start, end = step.starts[q], step.starts[q + 1]
        length = context + end - start
        first = 0 if window is None else max(0, context - window + 1)
        slots_S = _slots(step, q, first, length)
        out_TNH[start:end] = _attend(
            q_TNH[start:end],
            rel_TNR[start:end],
            keys_PLGH.flatten(0, 1)[slots_S],
            values_PLGH.flatten(0, 1)[slots_S],
            context - first,
            window,
        )
    return out_TNH


def _slots(step: Step, q: int, first: int, last: int) -> Tensor:
    """Flat cache slots of positions `first..last-1` of request `q`."""
    positions_S = torch.arange(first, last, device=step.block_table_QM.device)
    blocks_S = step.block_table_QM[q, positions_S // step.block_size]
    return blocks_S * step.block_size + positions_S % step.block_size


def _attend(
    q_TNH: Tensor,
    rel_TNR: Tensor,
    k_SGH: Tensor,
    v_SGH: Tensor,
    first_query: int,
    window: int | None,
) -> Tensor:
    """One request, dense: token t sits at key index `first_query + t`."""
    num_tokens, num_heads, head_dim = q_TNH.shape
    num_keys, num_kv_heads, _ = k_SGH.shape
    group = num_heads // num_kv_heads
    query_T1 = torch.arange(first_query, first_query + num_tokens, device=q_TNH.device)[:, None]
    distance_TS = query_T1 - torch.arange(num_keys, device=q_TNH.device)

    q_GXTH = q_TNH.float().view(num_tokens, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    scores_GXTS = q_GXTH @ k_SGH.float().permute(1, 2, 0)[:, None] / head_dim
    scores_NTS = scores_GXTS.flatten(0, 1) + _bias(rel_TNR, distance_TS)
    hidden_TS = distance_TS < 0
    if window is not None:
        hidden_TS = hidden_TS | (distance_TS >= window)
    scores_NTS = scores_NTS.masked_fill(hidden_TS, float("-inf"))
    probs_NTS = torch.softmax(scores_NTS, dim=-1).to(q_TNH.dtype)
    probs_GXTS = probs_NTS.unflatten(0, (num_kv_heads, group)).float()
    out_GXTH = probs_GXTS @ v_SGH.float().permute(1, 0, 2)[:, None]
    return out_GXTH.flatten(0, 1).transpose(0, 1).to(q_TNH.dtype)


def _bias(rel_TNR: Tensor, distance_TS: Tensor) -> Tensor:
    """Relative logit of each (token, key) pair, `[N, T, S]` float32; zero outside the extent."""
    extent = rel_TNR.shape[-1]
    rel_NTR = rel_TNR.float().transpose(0, 1)
    index_NTS = distance_TS.clamp(0, extent - 1).expand(rel_NTR.shape[0], -1, -1)
    outside_TS = (distance_TS < 0) | (distance_TS >= extent)
    return rel_NTR.gather(-1, index_NTS).masked_fill(outside_TS, 0.0)
