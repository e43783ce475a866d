"""Paged keys and values of every layer, as plain tensors.

Not a block allocator: the engine (or `generate.TokenGenerator`) chooses block ids. One pair per
layer, `[P, L, G, H]`: P physical blocks of L positions, keys stored after convolution and norm,
values after convolution. Block 0 is the null block; padding writes land there.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.parallel import SINGLE, TensorParallel
from inkling_core.step import Step


class KVCache(Protocol):
    """What attention asks of a cache: the tensors of a layer, and a place for new ones."""

    @property
    def keys(self) -> Sequence[Tensor]:
        """Per layer `[P, L, G, H]`."""
        ...

    @property
    def values(self) -> Sequence[Tensor]:
        """Per layer `[P, L, G, H]`."""
        ...

    def write(self, layer: int, k_TGH: Tensor, v_TGH: Tensor, step: Any) -> None:
        """Stores this step's keys and values; the cache knows its own kind of step."""
        ...


class TensorKVCache:
    """Keys and values by layer. The tensors may be an engine's own; they are written in place."""

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} key tensors but {len(values)} value tensors")
        self.keys, self.values = list(keys), list(values)

    @classmethod
    def allocate(
        cls,
        config: InklingConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        tp: TensorParallel = SINGLE,
        device: torch.device | None = None,
    ) -> "TensorKVCache":
        """A fresh cache of `num_blocks` blocks, the null block included.

        Slots start as NaN: none may be read before it is written.
        """
        shapes = [
            (num_blocks, block_size, tp.kv_heads(config.kv_heads(layer)), config.head_dim)
            for layer in range(config.num_hidden_layers)
        ]
        nan = float("nan")
        return cls(
            [torch.full(shape, nan, dtype=dtype, device=device) for shape in shapes],
            [torch.full(shape, nan, dtype=dtype, device=device) for shape in shapes],
        )

    def write(self, layer: int, k_TGH: Tensor, v_TGH: Tensor, step: Step) -> None:
        """Stores this step's keys and values at the slots of its tokens."""
        self.keys[layer].flatten(0, 1)[step.slots_T] = k_TGH.to(self.keys[layer].dtype)
        self.values[layer].flatten(0, 1)[step.slots_T] = v_TGH.to(self.values[layer].dtype)
