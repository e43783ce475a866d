"""What the kernels are timed beside: SDPA with a materialised bias, flex attention, HF's layer.

Not ours and not tuned beyond what their documentation says: flex attention is compiled, SDPA gets
its bias in the dtype of the queries, transformers' layer runs as it comes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu.shapes import Inputs

Run = Callable[[], Tensor]


def dense_keys(inputs: Inputs, arguments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """`[1, N, S, H]` keys and values of a single request, heads repeated for its group."""
    _, _, keys, values, step = arguments
    length = step.contexts[0] + step.lengths[0]
    place = torch.arange(length, device=inputs.device)
    slots = step.block_table_QM[0, place // step.block_size] * step.block_size
    slots = slots + place % step.block_size
    group = inputs.shapes.heads // inputs.shapes.kv_heads
    k, v = (x.flatten(0, 1)[slots].transpose(0, 1)[None] for x in (keys, values))
    return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def bias_of(rel_TNR: Tensor) -> Tensor:
    """`[1, N, T, T]` additive mask of a prefill: the band, and -inf above the diagonal."""
    tokens, heads, extent = rel_TNR.shape
    place = torch.arange(tokens, device=rel_TNR.device)
    distance = place[:, None] - place
    index = distance.clamp(0, extent - 1).expand(heads, -1, -1)
    bias = rel_TNR.transpose(0, 1).gather(-1, index)
    bias.masked_fill_(distance >= extent, 0.0)
    return bias.masked_fill_(distance < 0, float("-inf"))[None]


def sdpa(inputs: Inputs, arguments: tuple[Tensor, ...]) -> Run:
    """torch's SDPA over a bias that is made anew in each call, as each layer has to."""
    q_TNH, rel_TNR = arguments[:2]
    k, v = dense_keys(inputs, arguments)
    q = q_TNH.transpose(0, 1)[None]
    scale = 1 / inputs.shapes.head_dim
    return lambda: F.scaled_dot_product_attention(q, k, v, bias_of(rel_TNR), scale=scale)[
        0
    ].transpose(0, 1)


def flex(inputs: Inputs, arguments: tuple[Tensor, ...]) -> Run:
    """Compiled flex attention; its score_mod reads the same R logits per query."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q_TNH, rel_TNR = arguments[:2]
    k, v = dense_keys(inputs, arguments)
    q, tokens, extent = q_TNH.transpose(0, 1)[None], *rel_TNR.shape[::2]
    rel_NTR = rel_TNR.transpose(0, 1).contiguous()

    def biased(score, batch, head, query, key):
        distance = query - key
        near = rel_NTR[head, query, distance.clamp(0, extent - 1)]
        return score + torch.where(distance < extent, near, 0.0)

    def causal(batch, head, query, key):
        return query >= key

    mask = create_block_mask(causal, None, None, tokens, tokens, device=inputs.device)
    call = torch.compile(flex_attention) if inputs.device.type == "cuda" else flex_attention
    scale = 1 / inputs.shapes.head_dim
    return lambda: call(q, k, v, score_mod=biased, block_mask=mask, scale=scale)[0].transpose(0, 1)
