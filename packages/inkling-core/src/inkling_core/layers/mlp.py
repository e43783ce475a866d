"""Dense feed-forward of the first layers: w2(silu(gate) * up) * global_scale.

Not an expert: no routing weight, and `route_scale` does not apply.
"""

import torch
from torch import Tensor, nn

from inkling_core.backend import BoundOps
from inkling_core.config import InklingConfig
from inkling_core.layers.linear import Linear, parameter
from inkling_core.parallel import TensorParallel


class DenseMLP(nn.Module):
    """`[T, D]` -> `[T, D]`, summed over the ranks."""

    def __init__(
        self, config: InklingConfig, ops: BoundOps, tp: TensorParallel, dtype: torch.dtype
    ) -> None:
        super().__init__()
        width = tp.shard(config.intermediate_size, "intermediate_size")
        self.w13_dn = Linear(2 * width, config.hidden_size, dtype=dtype)
        self.w2_md = Linear(config.hidden_size, width, dtype=dtype)
        self.global_scale = parameter(1, dtype=dtype)
        self.ops, self.tp = ops, tp

    def forward(self, x_TD: Tensor) -> Tensor:
        hidden_TI = self.ops.silu_and_mul(self.w13_dn(x_TD))
        return self.tp.all_reduce(self.w2_md(hidden_TI)) * self.global_scale
