"""serving/conv_rows.py through the conformance suite, over rows cut from padded pages too."""

from __future__ import annotations

import pytest
import torch

from inkling_core.checkpoint import load_decoder
from inkling_core.conv_state import ConvLayout, ConvPlan, Stream
from inkling_core.conv_state.conformance import ConvStoreConformance
from inkling_core.kv_cache import TensorKVCache
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.serving.conv_rows import LayerConvStore
from inkling_core.serving.pages import PageLayout, cut_pages
from inkling_core.step import Step
from inkling_core.weights.tiny import make_tiny

LAYOUT = ConvLayout(4, (2, 2, 3, 3))


class TestOwnTensors(ConvStoreConformance[LayerConvStore]):
    """Rows of its own, NaN until written."""

    def make_store(self, layout, num_layers, num_blocks):
        return LayerConvStore.allocate(layout, num_layers, num_blocks)

    def rows(self, store, layer):
        return store.rows[layer]


class TestPages(ConvStoreConformance[LayerConvStore]):
    """Rows behind keys and values of another dtype, as vLLM's pool holds them."""

    def make_store(self, layout, num_layers, num_blocks):
        page = PageLayout(5, 2, 4, torch.bfloat16, layout.history, layout.width, torch.float32)
        size = num_blocks * page.page_bytes // 2
        pools = [
            torch.full((size,), float("nan"), dtype=torch.bfloat16).view(num_blocks, -1)
            for _ in range(num_layers)
        ]
        rows = [cut_pages(pool, page, 2).rows_PJC for pool in pools]
        for row in rows:
            row.fill_(float("nan"))
        return LayerConvStore(rows, layout)

    def rows(self, store, layer):
        return store.rows[layer]


def plan_of(lengths, contexts, tables):
    return ConvPlan.from_step(Step.build(lengths, contexts, tables, 4), 4)


def test_the_short_way_is_taken_for_decode_and_not_for_a_hit_in_the_step():
    assert not plan_of([1, 1], [5, 8], [[1, 2], [3, 4, 5]]).reads_within_step
    assert plan_of([4, 1], [0, 4], [[1], [1, 2]]).reads_within_step


def test_history_is_not_changed_by_later_exchanges():
    store = LayerConvStore.allocate(LAYOUT, 1, 9)
    for tensor in store.rows:
        tensor.fill_(1.0)
    plan = plan_of([2], [5], [[1, 2]])
    history = store.exchange(0, Stream.K, torch.full((2, 2), 7.0), plan)
    kept = history.clone()
    for stream in (Stream.V, Stream.ATTN, Stream.MLP):
        store.exchange(0, stream, torch.full((2, LAYOUT.widths[stream]), 7.0), plan)
    assert torch.equal(history, kept)


def test_a_layer_with_fewer_kv_heads_uses_the_first_channels():
    wide, narrow = (LayerConvStore.allocate(LAYOUT, 1, 9) for _ in range(2))
    for context, count in ((0, 3), (3, 2)):
        plan = plan_of([count], [context], [[2, 6]])
        for stream in Stream:
            x_TC = torch.randn(count, LAYOUT.widths[stream])
            used = 1 if stream in (Stream.K, Stream.V) else LAYOUT.widths[stream]
            full = wide.exchange(0, stream, x_TC, plan)
            part = narrow.exchange(0, stream, x_TC[:, :used], plan)
            assert torch.equal(part, full[:, :, :used])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_padding_rows_are_left_out(dtype):
    store = LayerConvStore.allocate(LAYOUT, 1, 9, dtype)
    step = Step.build([1], [0], [[3]], 4, padded_to=4)
    plan = ConvPlan.from_step(step, 4)
    for stream in Stream:
        x_TC = torch.full((4, LAYOUT.widths[stream]), float("nan"))
        x_TC[0] = 2.0
        assert not store.exchange(0, stream, x_TC, plan).any()
    assert torch.equal(store.rows[0][3, -1], torch.full((10,), 2.0, dtype=dtype))
    assert not store.rows[0][3, :2].any()


def chunked_logits(decoder: Decoder, row_dtype: torch.dtype) -> torch.Tensor:
    """Logits of 150 tokens in chunks of 7, so that almost every token reads a row soon before."""
    config, block = decoder.config, 16
    layout = ConvLayout.from_config(config)
    caches = Caches(
        TensorKVCache.allocate(config, 12, block, decoder.dtype),
        LayerConvStore.allocate(layout, config.num_hidden_layers, 12, row_dtype),
    )
    ids_T = torch.randint(0, 256, (150,), generator=torch.Generator().manual_seed(2))
    parts = []
    for start in range(0, 150, 7):
        chunk_T = ids_T[start : start + 7]
        step = Step.single(len(chunk_T), start, range(1, 12), block)
        parts.append(decoder.logits(decoder(chunk_T, step, caches)).float())
    return torch.cat(parts)


def test_rows_in_the_model_dtype_lose_nothing_and_narrower_ones_do(tmp_path):
    """The choice behind `conv_dtype: auto`: a row holds what the layer computed, unrounded."""
    make_tiny(tmp_path / "tiny")
    half = load_decoder(tmp_path / "tiny", dtype=torch.bfloat16)
    full = load_decoder(tmp_path / "tiny", dtype=torch.float32)
    assert torch.equal(chunked_logits(half, torch.bfloat16), chunked_logits(half, torch.float32))
    exact = chunked_logits(full, torch.float32)
    error = (chunked_logits(full, torch.bfloat16) - exact).abs().max()
    print(f"float32 model, bfloat16 rows: largest logit error {error:.4f}, std {exact.std():.2f}")
    assert error > 1e-4
