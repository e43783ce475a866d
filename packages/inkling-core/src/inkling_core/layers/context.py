"""What every layer of one step shares: the step, its index plans, the caches.

Not a cache and not computed per layer: `StepContext.of` runs once per step.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.conv_state.protocol import ConvStore
from inkling_core.kv_cache import KVCache
from inkling_core.ops import query_scale
from inkling_core.step import PackedStep


@dataclass(frozen=True)
class Caches:
    """State that outlives a step: paged keys and values, and the conv rows beside them."""

    kv: KVCache
    conv: ConvStore


@dataclass(frozen=True)
class StepContext:
    """One step as the layers see it.

    Args:
        step: tokens, positions, blocks.
        plan: the conv store's own plan of the step: which rows are read and written, and when.
        tau_T: float32 query scale of the global layers, None where the model has none.
        caches: read and written in place.
    """

    step: PackedStep
    plan: Any
    tau_T: Tensor | None
    caches: Caches

    @classmethod
    def of(cls, config: InklingConfig, step: PackedStep, caches: Caches) -> "StepContext":
        tau_T = None
        if config.log_scaling_n_floor is not None:
            tau_T = query_scale(
                step.positions_T, config.log_scaling_n_floor, config.log_scaling_alpha
            )
        return cls(step, caches.conv.plan(step), tau_T, caches)
