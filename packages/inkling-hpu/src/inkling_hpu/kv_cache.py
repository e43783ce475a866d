"""Paged keys and values as vllm-gaudi allocates them: flat, one tensor per layer and side.

    [(num_blocks + 1) * block_size, G, H]      slot = block * block_size + offset

The last block is the pad block: padding tokens write there, and padded list entries read it. What
it holds must be finite, because a masked key still meets a probability of zero.

What it is not: an allocator, or the conv rows (`conv_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import ConvLayout
from inkling_core.parallel import SINGLE, TensorParallel
from inkling_hpu.step import HpuStep


class PageBytes(NamedTuple):
    """What one block costs in one layer, in bytes."""

    kv: int
    rows: int


def page_bytes(
    config: InklingConfig, tp_size: int, block_size: int, dtype: torch.dtype
) -> PageBytes:
    """Keys and values of a block, and its conv row: a page is padded by the second, so that the
    engine's block count budgets both.

    The layer with the most key/value heads sets the size, because one block table serves all.
    """
    heads = max(config.num_key_value_heads, config.swa_num_key_value_heads)
    local = TensorParallel(size=tp_size).kv_heads(heads)
    kv = block_size * 2 * local * config.head_dim * dtype.itemsize
    return PageBytes(kv, ConvLayout.from_config(config, tp_size).row_bytes(dtype))


class HpuKVCache:
    """Keys and values by layer; the tensors may be an engine's own and are written in place.

    keys, values: per layer flat `[slots, G, H]`. block_size: positions per block.
    Raises ValueError where a tensor is not a whole number of blocks.
    """

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], block_size: int) -> None:
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} key tensors but {len(values)} value tensors")
        for layer, tensor in enumerate([*keys, *values]):
            if tensor.dim() != 3 or tensor.shape[0] % block_size:
                raise ValueError(
                    f"cache tensor {layer} has shape {tuple(tensor.shape)}, must be "
                    f"[blocks * {block_size}, heads, head_dim]"
                )
        self._flat = list(zip(keys, values, strict=True))
        self.keys = [tensor.unflatten(0, (-1, block_size)) for tensor in keys]
        self.values = [tensor.unflatten(0, (-1, block_size)) for tensor in values]

    @classmethod
    def allocate(
        cls,
        config: InklingConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        tp: TensorParallel = SINGLE,
        device: torch.device | str | None = None,
    ) -> HpuKVCache:
        """A cache of `num_blocks` blocks (the null block included) and the pad block, zeros."""
        sides = []
        for _ in range(2):
            sides.append(
                [
                    torch.zeros(
                        (num_blocks + 1) * block_size,
                        tp.kv_heads(config.kv_heads(layer)),
                        config.head_dim,
                        dtype=dtype,
                        device=device,
                    )
                    for layer in range(config.num_hidden_layers)
                ]
            )
        return cls(sides[0], sides[1], block_size)

    def write(self, layer: int, k_TGH: Tensor, v_TGH: Tensor, step: HpuStep) -> None:
        """Stores this step's keys and values at the slots of its tokens."""
        keys, values = self._flat[layer]
        keys.index_copy_(0, step.slots_T, k_TGH)
        values.index_copy_(0, step.slots_T, v_TGH)
