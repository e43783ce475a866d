"""One decoder layer.

x += attn_sconv(attention(attn_norm(x)))
x += mlp_sconv(mlp(mlp_norm(x)))             the residual stream stays in the model dtype

A convolution, its addition and the norm of the sum are one joined step (`inkling_core.joined`), so
a layer is given its input normed and ends with the norm of whatever comes next.
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
    """Stream and its norm `[T, D]` -> the same, one layer on. Attributes carry the published names
    of their tensors."""

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
        self.eps = config.rms_norm_eps

    def forward(
        self, x_TD: Tensor, normed_TD: Tensor, next_norm_D: Tensor, context: StepContext
    ) -> tuple[Tensor, Tensor]:
        """The stream after this layer, and its norm by the weight that follows the layer.

        normed_TD: `x_TD` normed by `attn_norm`. next_norm_D: the next layer's `attn_norm`, the
        decoder's final norm after the last layer.
        """
        attended_TD = self.attn(normed_TD, context)
        x_TD, normed_TD = self.attn_sconv(
            x_TD, attended_TD, self.mlp_norm.weight, self.eps, context
        )
        return self.mlp_sconv(x_TD, self.mlp(normed_TD), next_norm_D, self.eps, context)
