"""One page of vLLM's pool per block and layer: keys, values, and the block's conv row behind them.

What it is: the byte layout, and the views that cut it out of the storage vLLM allocates. As the
conv row lies inside the page, vLLM counts it in its pool size and its start-up check, and a
block id means the same to keys, values and conv state.

    page  = block_size key/value slots, then ceil(row_bytes / slot_bytes) slots that hold the row
    slot  = [2, G, H]   keys of one position, then its values
    row   = [J, width]  raw inputs of the last J positions, all four streams side by side

The row area is a whole number of slots, so slot s of block b is slot b * slots_per_page + s of one
evenly strided pool: a gather needs a single index.

What it is not: a cache policy (vLLM allots blocks) or the conv protocol (`conv_state`).
All layers share one page size: where local and global layers differ in KV heads, the larger
count sets it, because one block table serves all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PageLayout:
    """Sizes of one page. Counts are elements unless they say bytes.

    kv_heads: G that the slot has room for. row_length: J. row_width: channels of all streams.
    """

    block_size: int
    kv_heads: int
    head_dim: int
    kv_dtype: torch.dtype
    row_length: int
    row_width: int
    row_dtype: torch.dtype

    @property
    def slot_bytes(self) -> int:
        """Keys and values of one position."""
        return 2 * self.kv_heads * self.head_dim * self.kv_dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """One conv row."""
        return self.row_length * self.row_width * self.row_dtype.itemsize

    @property
    def slots_per_page(self) -> int:
        """Slots of a page, those of the row included."""
        return self.block_size + -(-self.row_bytes // self.slot_bytes)

    @property
    def page_bytes(self) -> int:
        """One block of one layer."""
        return self.slots_per_page * self.slot_bytes


@dataclass(frozen=True)
class PageViews:
    """What one layer reads and writes. P blocks, L positions per block, G heads of this layer."""

    keys_PLGH: Tensor
    values_PLGH: Tensor
    rows_PJC: Tensor


def cut_pages(pool: Tensor, layout: PageLayout, kv_heads: int) -> PageViews:
    """Views of one layer's pages.

    pool: any view whose dimension 0 walks the blocks at a stride of one page and whose first
    element opens block 0; its storage holds the whole page of each of its blocks.
    kv_heads: heads of this layer, at most `layout.kv_heads`.
    Raises ValueError where the pool's stride is not the layout's page.
    """
    stride_bytes = pool.stride(0) * pool.element_size()
    if stride_bytes != layout.page_bytes:
        raise ValueError(
            f"the pool holds pages of {stride_bytes} bytes, the layout needs {layout.page_bytes}: "
            "the engine changed the cache spec it was given"
        )
    if kv_heads > layout.kv_heads:
        raise ValueError(f"a layer has {kv_heads} KV heads, the page has room {layout.kv_heads}")
    num_blocks, head_dim = pool.shape[0], layout.head_dim
    first_byte = int(pool.storage_offset()) * pool.element_size()
    typed = _whole_storage(pool, layout.kv_dtype)
    slot = 2 * layout.kv_heads * head_dim
    page = layout.slots_per_page * slot
    first = first_byte // layout.kv_dtype.itemsize
    shape = (num_blocks, layout.block_size, kv_heads, head_dim)
    strides = (page, slot, head_dim, 1)
    values_first = first + layout.kv_heads * head_dim
    rows = _whole_storage(pool, layout.row_dtype)
    rows_first = first_byte + layout.block_size * layout.slot_bytes
    rows_stride = layout.page_bytes // layout.row_dtype.itemsize
    return PageViews(
        torch.as_strided(typed, shape, strides, first),
        torch.as_strided(typed, shape, strides, values_first),
        torch.as_strided(
            rows,
            (num_blocks, layout.row_length, layout.row_width),
            (rows_stride, layout.row_width, 1),
            rows_first // layout.row_dtype.itemsize,
        ),
    )


def _whole_storage(pool: Tensor, dtype: torch.dtype) -> Tensor:
    """The storage under `pool` as one flat tensor of `dtype`."""
    storage = pool.untyped_storage()
    flat = torch.empty(0, dtype=dtype, device=pool.device)
    shape = (storage.nbytes() // dtype.itemsize,)
    return flat.set_(storage, 0, shape)  # type: ignore[call-overload]  # stubs lack this storage
