"""Fused norm and rotary embedding, by their definitions.

    FusedRMSNorm      y = x / sqrt(mean(x^2) + eps) * weight, sums in float32
    rotary, blockwise y = x * cos + [-x2, x1] * sin     (halves)
    rotary, pairwise  the same on neighbouring pairs

What it is not: the hardware's rounding.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor


class FusedRMSNorm:
    """Called as `FusedRMSNorm.apply(x, weight, epsilon)`."""

    @staticmethod
    def apply(x: Tensor, weight: Tensor, epsilon: float, *_: object) -> Tensor:
        """x: any shape ending in the width; returns its shape and dtype."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        return (scaled * weight.float()).to(x.dtype)


class RotaryPosEmbeddingMode(Enum):
    """How the two parts of a rotated pair lie in the head."""

    BLOCKWISE = 0
    PAIRWISE = 1


def apply_rotary_pos_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    offset: int,
    mode: RotaryPosEmbeddingMode,
) -> Tensor:
    """x: [..., heads, width]; cos and sin broadcast to it.

    Raises NotImplementedError for positions or an offset: vllm-gaudi gathers cos and sin itself.
    """
    if position_ids is not None or offset:
        raise NotImplementedError("rotary with position ids or an offset is not emulated")
    if mode is RotaryPosEmbeddingMode.BLOCKWISE:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    else:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return (x * cos + turned * sin).to(x.dtype)
