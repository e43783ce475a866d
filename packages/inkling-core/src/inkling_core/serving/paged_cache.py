"""Keys and values of all layers over vLLM's pages, behind the interface of `TensorKVCache`.

What it is: the same tensors `[P, L, G, H]`, which reference ops can read as they are, plus the
evenly strided slot pool under them, through which a write is one indexed copy.

What it is not: the page layout (pages.py) or attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_core.kv_cache import TensorKVCache
from inkling_core.step import Step


def slot_pool(paged_PLGH: Tensor) -> tuple[Tensor, int]:
    """`[S, G, H]` view of all slots of a paged tensor, and the slots from one block to the next.

    Slot s of block b is row b * slots_per_block + s. Works for any paged tensor whose block stride
    is a whole number of slot strides (ValueError otherwise); rows between the blocks of a padded
    page belong to nobody here.
    """
    num_blocks, block_size, kv_heads, head_dim = paged_PLGH.shape
    page, slot = paged_PLGH.stride(0), paged_PLGH.stride(1)
    if page % slot:
        raise ValueError(f"a block stride of {page} elements is not a multiple of a slot's {slot}")
    slots_per_block = page // slot
    rows = (num_blocks - 1) * slots_per_block + block_size
    pool = paged_PLGH.as_strided(
        (rows, kv_heads, head_dim), (slot, paged_PLGH.stride(2), paged_PLGH.stride(3))
    )
    return pool, slots_per_block


class PagedKVCache(TensorKVCache):
    """Views of an engine's pages; written in place."""

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        super().__init__(keys, values)
        self._pools = [
            (slot_pool(k)[0], slot_pool(v)[0]) for k, v in zip(keys, values, strict=True)
        ]
        self._block_size, self._slots_per_block = keys[0].shape[1], slot_pool(keys[0])[1]
        self._indexed: tuple[Step, Tensor] | None = None

    def write(self, layer: int, k_TGH: Tensor, v_TGH: Tensor, step: Step) -> None:
        """As `TensorKVCache.write`; padding rows land in the null block."""
        keys, values = self._pools[layer]
        index_T = self._index(step)
        keys.index_copy_(0, index_T, k_TGH.to(keys.dtype))
        values.index_copy_(0, index_T, v_TGH.to(values.dtype))

    def _index(self, step: Step) -> Tensor:
        """int64 [T] pool rows of this step's tokens, made once per step."""
        if self._indexed is None or self._indexed[0] is not step:
            slots_T = step.slots_T
            blocks_T = torch.div(slots_T, self._block_size, rounding_mode="floor")
            gap = self._slots_per_block - self._block_size
            self._indexed = (step, slots_T + blocks_T * gap)
        return self._indexed[1]
