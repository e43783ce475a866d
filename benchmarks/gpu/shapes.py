"""Shapes of one of eight ranks of Inkling-Small, and the inputs that are timed on them.

Not the parity cases (`inkling_core.parity.cases`); those are checked before anything is timed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core.step import Step


@dataclass(frozen=True)
class Shapes:
    """Names as in the shape legend of `inkling_core.ops`; `keys` is the context of a decode."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    extent: int
    experts: int
    chosen: int
    width: int
    block: int
    token_counts: tuple[int, int]  # of the expert timings
    conv_tokens: int
    prefill: int
    requests: int
    keys: int


TP8 = Shapes(4096, 4, 1, 128, 1024, 256, 6, 256, 128, (4096, 16384), 8192, 8192, 16, 32768)
TOY = Shapes(64, 4, 1, 16, 32, 4, 2, 16, 16, (8, 32), 16, 32, 2, 64)


class Inputs:
    """Random tensors of one shape set on a device, in bfloat16."""

    def __init__(self, shapes: Shapes, device: torch.device) -> None:
        self.shapes, self.device = shapes, device
        self.generator = torch.Generator(device).manual_seed(0)

    def normal(
        self, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16
    ) -> Tensor:
        values = torch.randn(shape, generator=self.generator, device=self.device) * scale
        return values.to(dtype)

    def experts(self, tokens: int) -> tuple[Tensor, ...]:
        """x, ids, weights, w13, w2 with every expert about equally loaded."""
        s = self.shapes
        scores = torch.rand(tokens, s.experts, generator=self.generator, device=self.device)
        ids_TK = scores.topk(s.chosen, dim=1).indices
        return (
            self.normal(tokens, s.hidden),
            ids_TK,
            self.normal(tokens, s.chosen),
            self.normal(s.experts, 2 * s.width, s.hidden, scale=s.hidden**-0.5),
            self.normal(s.experts, s.hidden, s.width, scale=s.width**-0.5),
        )

    def attention(self, lengths: list[int], contexts: list[int]) -> tuple[Tensor, ...]:
        """q, rel, keys, values, step; blocks in a random order."""
        s = self.shapes
        needs = [-(-(a + b) // s.block) for a, b in zip(lengths, contexts, strict=True)]
        order = torch.randperm(sum(needs), generator=torch.Generator().manual_seed(0)) + 1
        tables = [part.tolist() for part in order.split(needs)]
        step = Step.build(lengths, contexts, tables, s.block, device=self.device)
        pages = (sum(needs) + 1, s.block, s.kv_heads, s.head_dim)
        return (
            self.normal(sum(lengths), s.heads, s.head_dim, scale=s.head_dim**0.5),
            self.normal(sum(lengths), s.heads, s.extent),
            self.normal(*pages, scale=0.6),
            self.normal(*pages, scale=0.6),
            step,
        )

    def conv(self) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
        """x, history, taps, starts of one long request."""
        s = self.shapes
        return (
            self.normal(s.conv_tokens, s.hidden),
            self.normal(1, 3, s.hidden),
            self.normal(s.hidden, 4, scale=0.5, dtype=torch.float32),
            (0, s.conv_tokens),
        )
