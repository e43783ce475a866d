"""Attention of one layer: projections, preparation, cache write, relative attention, output.

Not the math (ops) and not the paging (`kv_cache`). Queries are sharded over the ranks; key/value
heads too, up to their count, and replicated beyond it.
"""

import torch
from torch import Tensor, nn

from inkling_core.backend import BoundOps
from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import Stream
from inkling_core.layers.context import StepContext
from inkling_core.layers.linear import Linear, Weight, parameter
from inkling_core.layers.short_conv import ShortConv
from inkling_core.ops import QkvrWeights
from inkling_core.parallel import TensorParallel


class RelLogitsProj(nn.Module):
    """Bank of bias-by-distance profiles, `proj [U, R]`; published without a `.weight` suffix."""

    def __init__(self, rel_dim: int, extent: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.proj = parameter(rel_dim, extent, dtype=dtype)


class Attention(nn.Module):
    """`[T, D]` -> `[T, D]`, summed over the ranks."""

    def __init__(
        self,
        config: InklingConfig,
        layer: int,
        ops: BoundOps,
        tp: TensorParallel,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        heads = tp.shard(config.num_attention_heads, "num_attention_heads")
        kv_width = tp.kv_heads(config.kv_heads(layer)) * config.head_dim
        hidden, head_dim, taps = config.hidden_size, config.head_dim, config.conv_kernel_size
        self.wq_du = Linear(heads * head_dim, hidden, dtype=dtype)
        self.wk_dv = Linear(kv_width, hidden, dtype=dtype)
        self.wv_dv = Linear(kv_width, hidden, dtype=dtype)
        self.wr_du = Linear(heads * config.d_rel, hidden, dtype=dtype)
        self.wo_ud = Linear(hidden, heads * head_dim, dtype=dtype)
        self.q_norm = Weight(head_dim, dtype=dtype)
        self.k_norm = Weight(head_dim, dtype=dtype)
        self.k_sconv = ShortConv(layer, Stream.K, kv_width, taps, ops)
        self.v_sconv = ShortConv(layer, Stream.V, kv_width, taps, ops)
        self.rel_logits_proj = RelLogitsProj(config.d_rel, config.extent(layer), dtype)
        self.layer, self.ops, self.tp = layer, ops, tp
        self.window, self.eps = config.window(layer), config.rms_norm_eps

    def forward(self, x_TD: Tensor, context: StepContext) -> Tensor:
        k_TC, v_TC = self.wk_dv(x_TD), self.wv_dv(x_TD)
        kv = context.caches.kv
        q_TNH, rel_TNR = self.ops.qkvr_prep_and_write(
            self.wq_du(x_TD),
            k_TC,
            v_TC,
            self.wr_du(x_TD),
            self.side_weights(),
            self.k_sconv.history(k_TC, context),
            self.v_sconv.history(v_TC, context),
            context.tau_T if self.window is None else None,
            self.eps,
            kv,
            self.layer,
            context.step,
        )
        keys, values = kv.keys[self.layer], kv.values[self.layer]
        out_TNH = self.ops.rel_attention(q_TNH, rel_TNR, keys, values, context.step, self.window)
        return self.tp.all_reduce(self.wo_ud(out_TNH.flatten(1)))

    def side_weights(self) -> QkvrWeights:
        return QkvrWeights(
            self.k_sconv.weight[:, 0],
            self.v_sconv.weight[:, 0],
            self.q_norm.weight,
            self.k_norm.weight,
            self.rel_logits_proj.proj,
        )
