"""conv_hoist.py and hoisted rows of conv_rows.py: the conformance suite once more, then what a
weighed history adds up to, on shared rows, beside the law."""

from __future__ import annotations

import pytest
import test_conv_rows as one_by_one
import torch

from inkling_core import ops as law
from inkling_core.conv_state import ConvLayout, Stream
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_hpu import conv_rows
from inkling_hpu.builders import build_decode, build_prefill
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.step import HpuStep

LAYERS, PAD = 3, 9
LAYOUT = ConvLayout(4, (6, 6, 10, 10))
DTYPES = [pytest.param(torch.float32, id="f32"), pytest.param(torch.bfloat16, id="bf16")]


class TestHoistedRows(one_by_one.TestRows):
    """R1 to R7 where a step gathers all layers first and writes them last."""

    fuzz_examples = 30

    def make_store(self, layout, num_layers, num_blocks):
        taps_WX = torch.ones(layout.taps, num_layers * layout.width)
        store = HpuConvStore.allocate(
            layout, num_layers, num_blocks, torch.float32, taps_WX=taps_WX
        )
        for rows in store.rows:
            rows[: num_blocks + 1] = one_by_one.NAN
        return one_by_one.OnGaudi(store)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def filled(dtype, taps_WX):
    """Hoisted rows that hold random inputs."""
    store = HpuConvStore.allocate(LAYOUT, LAYERS, PAD, dtype, taps_WX=taps_WX)
    for number, rows in enumerate(store.rows):
        rows[:-1] = normal(*rows[:-1].shape, seed=number).to(dtype)
    return store


def decode(rows: int) -> HpuStep:
    return build_decode(
        [5 + q for q in range(rows)], [[1 + q] for q in range(rows)], num_rows=rows,
        num_blocks=rows, window=8, block_size=16, pad_block=PAD,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_a_weighed_history_is_the_law(rows, dtype):
    """In float32 within 2e-6 for terms of size 1; in bfloat16 cell by cell the same."""
    taps_WX = normal(LAYOUT.taps, LAYERS * LAYOUT.width, seed=7)
    store, step = filled(dtype, taps_WX), decode(rows)
    wanted = [store.layer_rows(layer)[step.rows.load_Q].clone() for layer in range(LAYERS)]
    plan = store.plan(step)
    for layer in range(LAYERS):
        for stream in Stream:
            own = LAYOUT.channels(stream)
            x_TC = normal(rows, LAYOUT.widths[stream], seed=layer + 10).to(dtype)
            found = store.exchange(layer, stream, x_TC, plan)
            assert torch.equal(found.history_QJC, wanted[layer][:, :, own])
            taps_CW = taps_WX.unflatten(1, (LAYERS, -1))[:, layer, own].T
            expected = law.short_conv(x_TC, found.history_QJC, taps_CW, tuple(range(rows + 1)))
            actual = found.with_token(x_TC)
            assert actual.dtype == dtype
            assert_within(actual, expected, tolerance("short_conv", dtype), f"{layer} {stream}")
            if dtype is torch.bfloat16:
                assert torch.equal(actual, expected)
            else:
                assert (actual - expected).abs().max() <= 2e-6


def test_a_layer_with_fewer_heads_leaves_a_gap_behind_its_values():
    """Its keys and values are neighbours, in the row and in the taps; the gap is zeros."""
    taps_WX = normal(LAYOUT.taps, LAYERS * LAYOUT.width, seed=7)
    store, step = filled(torch.float32, taps_WX), decode(2)
    before = store.layer_rows(1)[step.rows.load_Q].clone()
    plan = store.plan(step)
    narrow = (4, 4, 10, 10)
    for layer in range(LAYERS):
        widths = narrow if layer == 1 else LAYOUT.widths
        for stream, width in zip(Stream, widths, strict=True):
            found = store.exchange(layer, stream, torch.full((2, width), 1.0 + stream), plan)
            if layer == 1 and stream is Stream.V:
                assert torch.equal(found.history_QJC, before[:, :, 4:8])
                token_X = 1 + taps_WX[3, LAYOUT.width :]
                assert torch.equal(found.token_C, token_X[4:8])
    newest = store.layer_rows(1)[step.rows.store_QR.flatten(), -1]
    expected = [1.0] * 4 + [2.0] * 4 + [0.0] * 4 + [3.0] * 10 + [4.0] * 10
    assert newest.tolist() == [expected] * 2


def test_a_step_gathers_and_writes_once():
    """Whatever its kind; no row changes before the last stream of the last layer."""
    taps_WX = normal(LAYOUT.taps, LAYERS * LAYOUT.width, seed=7)
    prefill = build_prefill(
        [3], [5], [[1]], num_rows=1, row_length=4, num_context_blocks=1, block_size=16,
        pad_block=PAD,
    )  # fmt: skip
    for step in (decode(1), prefill):
        store = filled(torch.float32, taps_WX)
        before = store.rows[0].clone()
        plan = store.plan(step)
        for layer in range(LAYERS):
            for stream in Stream:
                assert torch.equal(store.rows[0], before)
                x_TC = torch.ones(step.num_rows * step.row_length, LAYOUT.widths[stream])
                store.exchange(layer, stream, x_TC, plan)
        changed = (store.rows[0] != before).flatten(1).any(1).nonzero().flatten()
        assert set(changed.tolist()) - {PAD} == {1}


def test_rows_too_large_for_one_tensor_are_cut_between_layers(monkeypatch):
    """The same histories and rows from two tensors as from one."""
    taps_WX = normal(LAYOUT.taps, LAYERS * LAYOUT.width, seed=7)
    whole = filled(torch.float32, taps_WX)
    most = 2 * (PAD + 2) * LAYOUT.history * LAYOUT.width
    monkeypatch.setattr(conv_rows, "MOST_ELEMENTS", most)
    cut = HpuConvStore.allocate(LAYOUT, LAYERS, PAD, torch.float32, taps_WX=taps_WX)
    assert [rows.shape[-1] for rows in cut.rows] == [2 * LAYOUT.width, LAYOUT.width]
    for layer in range(LAYERS):
        cut.layer_rows(layer).copy_(whole.layer_rows(layer))
    step = decode(2)
    answers = []
    for store in (whole, cut):
        plan, found = store.plan(step), []
        for layer in range(LAYERS):
            for stream in Stream:
                x_TC = normal(2, LAYOUT.widths[stream], seed=layer)
                found.append(store.exchange(layer, stream, x_TC, plan).with_token(x_TC))
        answers.append(found)
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)
    for layer in range(LAYERS):
        assert torch.equal(cut.layer_rows(layer), whole.layer_rows(layer))
