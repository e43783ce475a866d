"""One decoder layer.

x += attn_sconv(attention(attn_norm(x)))
x += mlp_sconv(mlp(mlp_norm(x)))             the residual stream stays in the model dtype
"""

import torch
from torch import Tensor, nn

from inkling_core.backend import BoundOps
from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import Stream
from inkling_core.layers.attention import Attention
from inkling_core.layers.context import StepContext
from inkling_core.layers.linear import Weight
from inkling_core.layers.mlp import DenseMLP
from inkling_core.layers.moe import MoE
from inkling_core.layers.short_conv import ShortConv
from inkling_core.parallel import TensorParallel


class DecoderLayer(nn.Module):
    """`[T, D]` -> `[T, D]`. Attributes carry the published names of their tensors."""

    def __init__(
        self,
        config: InklingConfig,
        layer: int,
        ops: BoundOps,
        tp: TensorParallel,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        hidden, taps = config.hidden_size, config.conv_kernel_size
        self.attn_norm = Weight(hidden, dtype=dtype)
        self.attn = Attention(config, layer, ops, tp, dtype)
        self.attn_sconv = ShortConv(layer, Stream.ATTN, hidden, taps, ops)
        self.mlp_norm = Weight(hidden, dtype=dtype)
        self.mlp = (DenseMLP if config.is_dense(layer) else MoE)(config, ops, tp, dtype)
        self.mlp_sconv = ShortConv(layer, Stream.MLP, hidden, taps, ops)
        self.ops, self.eps = ops, config.rms_norm_eps

    def forward(self, x_TD: Tensor, context: StepContext) -> Tensor:
        normed_TD = self.ops.rms_norm(x_TD, self.attn_norm.weight, self.eps)
        x_TD = x_TD + self.attn_sconv(self.attn(normed_TD, context), context)
        normed_TD = self.ops.rms_norm(x_TD, self.mlp_norm.weight, self.eps)
        return x_TD + self.mlp_sconv(self.mlp(normed_TD), context)
