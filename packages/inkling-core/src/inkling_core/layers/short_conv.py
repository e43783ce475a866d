"""One hidden-wide short convolution on a residual delta, with its state.

Not the convolutions on keys and values: those run inside `qkvr_prep`, before the head split.

    stream += delta + conv(delta)      and the next block reads the norm of the stream
"""

from typing import Any

import torch
from torch import Tensor

from inkling_core.backend import BoundOps
from inkling_core.conv_state.layout import Stream
from inkling_core.layers.context import StepContext
from inkling_core.layers.linear import Weight


class ShortConv(Weight):
    """`weight` is `[C, 1, W]` as published; float32."""

    def __init__(self, layer: int, stream: Stream, channels: int, taps: int, ops: BoundOps) -> None:
        super().__init__(channels, 1, taps, dtype=torch.float32)
        self.layer, self.stream, self.ops = layer, stream, ops

    def history(self, x_TC: Tensor, context: StepContext) -> Any:
        """Stores this step's raw inputs; returns each request's `[Q, J, C]` history, in the
        store's own form."""
        return context.caches.conv.exchange(self.layer, self.stream, x_TC, context.plan)

    def forward(
        self, stream_TD: Tensor, delta_TD: Tensor, norm_D: Tensor, eps: float, context: StepContext
    ) -> tuple[Tensor, Tensor]:
        """The residual stream with a block's output in it, and its norm by `norm_D`."""
        history_QJD, starts = self.history(delta_TD, context), context.step.starts
        return self.ops.conv_add_norm(
            stream_TD, delta_TD, history_QJD, self.weight[:, 0], starts, norm_D, eps
        )
