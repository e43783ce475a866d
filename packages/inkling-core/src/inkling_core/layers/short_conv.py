"""One hidden-wide short convolution on a residual delta, with its state.

Not the convolutions on keys and values: those run inside `qkvr_prep`, before the head split.

    y = delta + conv(delta)      then the caller adds the residual stream
"""

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

    def history(self, x_TC: Tensor, context: StepContext) -> Tensor:
        """Stores this step's raw inputs; returns each request's `[Q, J, C]` history."""
        return context.caches.conv.exchange(self.layer, self.stream, x_TC, context.plan)

    def forward(self, x_TC: Tensor, context: StepContext) -> Tensor:
        history_QJC = self.history(x_TC, context)
        return self.ops.short_conv(x_TC, history_QJC, self.weight[:, 0], context.step.starts)
