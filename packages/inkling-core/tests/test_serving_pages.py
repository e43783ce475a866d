"""pages.py, paged_cache.py, plan.py: bytes of a page, writes through it, start-up arithmetic."""

from __future__ import annotations

import pytest
import torch

from inkling_core.config import PRESETS
from inkling_core.kv_cache import TensorKVCache
from inkling_core.serving.paged_cache import PagedKVCache, slot_pool
from inkling_core.serving.pages import PageLayout, cut_pages
from inkling_core.serving.plan import check_pool, conv_row_dtype, page_layout, row_share
from inkling_core.step import Step

F32, BF16 = torch.float32, torch.bfloat16
LAYOUTS = {
    "f32": PageLayout(5, 2, 4, F32, 3, 7, F32),
    "bf16-rows-f32": PageLayout(5, 2, 4, BF16, 3, 7, F32),
    "one-head-odd": PageLayout(3, 1, 5, F32, 2, 11, BF16),
}


def pool_of(layout: PageLayout, blocks: int, offset: int = 0) -> torch.Tensor:
    """What vLLM hands over: a view of the key/value part only, padded pages, maybe an offset."""
    size = layout.kv_dtype.itemsize
    page, slot = layout.page_bytes // size, layout.slot_bytes // size
    storage = torch.zeros(offset + blocks * page, dtype=layout.kv_dtype)
    return storage.as_strided((blocks, layout.block_size, slot), (page, slot, 1), offset)


@pytest.mark.parametrize("name", list(LAYOUTS))
@pytest.mark.parametrize("offset_pages", [0, 2])
def test_keys_values_and_rows_share_no_byte_and_stay_in_their_page(name, offset_pages):
    layout = LAYOUTS[name]
    offset = offset_pages * layout.page_bytes // layout.kv_dtype.itemsize
    pool = pool_of(layout, 4, offset)
    pages = cut_pages(pool, layout, layout.kv_heads)
    parts = [pages.keys_PLGH, pages.values_PLGH, pages.rows_PJC]
    for mark, part in enumerate(parts, 1):
        for block in range(4):
            part[block] = 10 * mark + block
    for mark, part in enumerate(parts, 1):
        for block in range(4):
            assert bool((part[block] == 10 * mark + block).all()), "another view wrote here"
    first = pages.keys_PLGH.storage_offset() * layout.kv_dtype.itemsize
    last_row = pages.rows_PJC[-1, -1]
    end = (last_row.storage_offset() + last_row.numel()) * layout.row_dtype.itemsize
    assert first == offset_pages * layout.page_bytes
    assert end <= (offset_pages + 4) * layout.page_bytes


def test_a_changed_page_size_is_refused():
    pool = torch.zeros(4, 100)
    with pytest.raises(ValueError, match="pages of 400 bytes, the layout needs"):
        cut_pages(pool, LAYOUTS["f32"], 2)


def test_more_heads_than_room_are_refused():
    layout = LAYOUTS["f32"]
    with pytest.raises(ValueError, match="3 KV heads, the page has room 2"):
        cut_pages(pool_of(layout, 2), layout, 3)


def test_slot_pool_of_a_dense_cache_is_its_flat_view():
    keys = torch.randn(3, 5, 2, 4)
    pool, per_block = slot_pool(keys)
    assert per_block == 5 and torch.equal(pool, keys.flatten(0, 1))


@pytest.mark.parametrize("name", ["f32", "bf16-rows-f32"])
def test_write_equals_the_reference_cache_and_touches_nothing_else(name):
    layout = LAYOUTS[name]
    pages = cut_pages(pool_of(layout, 6), layout, 2)
    paged = PagedKVCache([pages.keys_PLGH], [pages.values_PLGH])
    dense = [torch.zeros(6, 5, 2, 4, dtype=layout.kv_dtype) for _ in range(2)]
    reference = TensorKVCache(dense[:1], dense[1:])
    steps = [
        Step.build([7, 1], [0, 9], [[2, 5], [4, 1]], 5, padded_to=10),
        Step.build([1, 1], [7, 10], [[2, 5], [4, 1, 3]], 5),
    ]
    for step in steps:
        new = torch.randn(2, len(step.positions_T), 2, 4)
        paged.write(0, new[0], new[1], step)
        reference.write(0, new[0], new[1], step)
    assert torch.equal(pages.keys_PLGH, reference.keys[0])
    assert torch.equal(pages.values_PLGH, reference.values[0])
    assert not pages.rows_PJC.any()


@pytest.mark.parametrize(
    ("blocks", "length", "fits"),
    [(3, 256, True), (2, 256, False), (2, 128, True), (1, 1, False), (3, 257, False)],
)
def test_pool_must_hold_one_request_beside_the_null_block(blocks, length, fits):
    if fits:
        check_pool(blocks, 128, length)
        return
    with pytest.raises(ValueError, match=f"max_model_len={length}.*null block"):
        check_pool(blocks, 128, length)


def test_page_of_inkling_small_by_hand():
    """8 KV heads of 128, bf16: a slot is 4 KiB; a row is 3 x (1024 + 1024 + 4096 + 4096)."""
    layout = page_layout(PRESETS["inkling_small"], 1, 128, BF16, BF16)
    assert layout.slot_bytes == 4096
    assert layout.row_bytes == 3 * 10240 * 2
    assert layout.slots_per_page == 128 + 15
    assert row_share(layout) == pytest.approx(15 / 143)
    assert page_layout(PRESETS["inkling_small"], 8, 128, BF16, BF16).kv_heads == 1


def test_conv_row_dtype_follows_the_model_unless_named():
    assert conv_row_dtype("auto", BF16) is BF16
    assert conv_row_dtype("float32", BF16) is F32
