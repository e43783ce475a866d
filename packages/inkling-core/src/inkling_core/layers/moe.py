"""Mixture of experts: router, routed experts, shared experts, one sum over the ranks.

Not the choice or the weights (`ops.router`) and not the expert math (`ops.experts`); the three ops
are one joined step (`inkling_core.joined`). Every rank holds a slice of the width of every expert,
so routing is replicated and needs no exchange.
"""

from functools import partial

import torch
from torch import Tensor, nn

from inkling_core import ops as reference_ops
from inkling_core.backend import BoundOps
from inkling_core.config import InklingConfig
from inkling_core.joined import ALWAYS, MixtureWeights, mixture
from inkling_core.layers.linear import frozen, parameter
from inkling_core.packed_experts import PackedExperts
from inkling_core.parallel import TensorParallel


class Gate(nn.Module):
    """Router tensors: routed rows first, then the shared ones; the bias covers routed rows only."""

    def __init__(self, config: InklingConfig, dtype: torch.dtype) -> None:
        super().__init__()
        num_rows = config.n_routed_experts + config.n_shared_experts
        self.weight = parameter(num_rows, config.hidden_size, dtype=dtype)
        self.bias = parameter(config.n_routed_experts, dtype=torch.float32)
        self.global_scale = parameter(1, dtype=torch.float32)


class RoutedExperts(nn.Module):
    """`w13_weight [E, 2I, D]` interleaved, `w2_weight [E, D, I]`."""

    def __init__(self, config: InklingConfig, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        experts, hidden = config.n_routed_experts, config.hidden_size
        self.w13_weight = parameter(experts, 2 * width, hidden, dtype=dtype)
        self.w2_weight = parameter(experts, hidden, width, dtype=dtype)


class SharedExperts(nn.Module):
    """The always-on experts, same layout under their own published names."""

    def __init__(self, config: InklingConfig, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        experts, hidden = config.n_shared_experts, config.hidden_size
        self.shared_w13_weight = parameter(experts, 2 * width, hidden, dtype=dtype)
        self.shared_w2_weight = parameter(experts, hidden, width, dtype=dtype)


class MoE(nn.Module):
    """`[T, D]` -> `[T, D]`, summed over the ranks."""

    def __init__(
        self, config: InklingConfig, ops: BoundOps, tp: TensorParallel, dtype: torch.dtype
    ) -> None:
        super().__init__()
        width = tp.shard(config.moe_intermediate_size, "moe_intermediate_size")
        self.gate = Gate(config, dtype)
        self.experts = RoutedExperts(config, width, dtype)
        self.shared_experts = SharedExperts(config, width, dtype)
        self.num_chosen, self.num_shared = config.num_experts_per_tok, config.n_shared_experts
        self.route_scale, self.ops, self.tp = config.route_scale, ops, tp
        self.mixture = ops.mixture
        self.choice_bias_E, self.scale = self._constants()

    def pack_weights(self) -> None:
        """Puts loaded expert weights into the back end's layout, one tensor after the other.

        Experts in a block format stay as they are and run through the reference op, which asks
        for one expert at a time; a kernel would want all of them decoded at once.
        """
        pack, routed, shared = self.ops.pack_experts, self.experts, self.shared_experts
        if isinstance(routed.w13_weight, PackedExperts):
            one_by_one = self.ops.router, reference_ops.experts, self.ops.shared_experts
            self.mixture = partial(mixture, *one_by_one)
        else:
            w13, w2 = pack(routed.w13_weight, routed.w2_weight)
            routed.w13_weight, routed.w2_weight = frozen(w13), frozen(w2)
        w13, w2 = pack(shared.shared_w13_weight, shared.shared_w2_weight)
        shared.shared_w13_weight, shared.shared_w2_weight = frozen(w13), frozen(w2)
        self.choice_bias_E, self.scale = self._constants()

    def _constants(self) -> tuple[Tensor, Tensor]:
        """`MixtureWeights.choice_bias_E` and `scale`."""
        bias_E = self.gate.bias
        always = bias_E.new_full((self.num_shared,), ALWAYS)
        return torch.cat([bias_E, always]), self.gate.global_scale * self.route_scale

    def forward(self, x_TD: Tensor) -> Tensor:
        gate, routed, shared = self.gate, self.experts, self.shared_experts
        weights = MixtureWeights(
            gate.weight,
            gate.bias,
            gate.global_scale,
            self.choice_bias_E,
            self.scale,
            routed.w13_weight,
            routed.w2_weight,
            shared.shared_w13_weight,
            shared.shared_w2_weight,
        )
        parts = self.mixture(x_TD, weights, self.num_chosen, self.num_shared, self.route_scale)
        return self.tp.reduce_sum(*parts)
