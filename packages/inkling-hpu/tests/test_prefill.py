"""prefill.py against the law: absolute positions, windows, padding, query blocks."""

from __future__ import annotations

import random

import pytest
import torch
from attention_cases import make_case, prefill_step, scattered

from inkling_hpu import markers, prefill
from inkling_hpu.switches import MASK_LIMIT, Switches

L = 8
FULL_CONTEXT = Switches(local_window_prefill=False)
"""Whole contexts on local layers too: what the short way is held to."""


def case_of(lengths, contexts, extent, *, block_size=L, dtype=torch.float32, seed=0):
    needs = [-(-(a + b) // block_size) for a, b in zip(lengths, contexts, strict=True)]
    tables, pool = scattered(needs, seed)
    return make_case(lengths, contexts, tables, block_size, pool, extent, dtype, seed), pool


@pytest.mark.parametrize("window", [None, 1, 3, 7, 8, 9, 16, 17, 100], ids=lambda w: f"window-{w}")
@pytest.mark.parametrize("context", [0, 1, 2, 6, 7, 8, 9, 10, 15, 16, 17, 24, 31])
def test_every_context_around_block_edges(context, window):
    for length in (1, 2, 3, 7, 8, 9, 17):
        case, pad = case_of([length], [context], window or 11)
        step = prefill_step(case, pad)
        case.check(step, window)


@pytest.mark.parametrize("extent", [1, 5, 12, 40], ids=lambda r: f"R{r}")
def test_extents_below_and_above_the_window(extent):
    case, pad = case_of([13], [22], extent)
    for window in (None, 12):
        step = prefill_step(case, pad)
        case.check(step, window)


@pytest.mark.parametrize("contexts", [[0, 0, 0], [9, 0, 24], [8, 17, 1]], ids=str)
@pytest.mark.parametrize("window", [None, 9], ids=["global", "window-9"])
def test_rows_of_several_requests(contexts, window):
    case, pad = case_of([5, 12, 1], contexts, 9)
    step = prefill_step(case, pad)
    case.check(step, window)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("context", [0, 500, 640, 1000])
@pytest.mark.parametrize(("window", "extent"), [(None, 1024), (512, 512)], ids=["global", "local"])
def test_the_published_geometry(context, window, extent, dtype):
    case, pad = case_of([129], [context], extent, block_size=128, dtype=dtype)
    step = prefill_step(case, pad, spare=1)
    case.check(step, window)


def test_a_shared_prefix_block_serves_two_requests():
    tables = [[3, 1, 5], [3, 1, 2]]
    case = make_case([4, 4], [18, 18], tables, L, 6, 9)
    step = prefill_step(case, 6)
    for window in (None, 9):
        case.check(step, window)


@pytest.mark.parametrize("number", range(40))
def test_local_window_equals_the_full_context(number):
    """Forty random geometries: the last blocks give what the whole context gives."""
    draw = random.Random(number)
    size = draw.choice([4, 8, 16])
    window = draw.randint(1, 5 * size)
    requests = draw.randint(1, 3)
    lengths = [draw.randint(1, 3 * size) for _ in range(requests)]
    contexts = [draw.randint(0, 12 * size) for _ in range(requests)]
    case, pad = case_of(lengths, contexts, window, block_size=size, seed=number)
    spare = draw.randint(0, 3)
    short = prefill_step(case, pad, spare=spare)
    whole = prefill_step(case, pad, spare=spare, switches=FULL_CONTEXT)
    torch.testing.assert_close(
        case.answer(short, window), case.answer(whole, window), rtol=0, atol=1e-5
    )
    case.check(short, window)


def test_local_layers_fetch_the_last_blocks_only():
    case, pad = case_of([16], [2000], 512, block_size=128)
    step = prefill_step(case, pad)
    assert prefill.key_columns(step, 512).num_context == 5 * 128
    assert prefill.key_columns(step, None).num_context == 19 * 128
    whole = prefill_step(case, pad, switches=FULL_CONTEXT)
    assert prefill.key_columns(whole, 512).num_context == 19 * 128


@pytest.mark.parametrize("mask_bytes", [1, 3000, 9000, 20000])
@pytest.mark.parametrize("window", [None, 9], ids=["global", "window-9"])
def test_query_blocks_under_a_budget(mask_bytes, window, monkeypatch):
    breaks, masks = [], []
    sdpa = markers.fsdpa
    monkeypatch.setattr(markers, "graph_break", lambda: breaks.append(len(masks)))
    monkeypatch.setattr(markers, "fsdpa", lambda *a: (masks.append(a[3]), sdpa(*a))[1])
    case, pad = case_of([21], [19], 9)
    step = prefill_step(case, pad, switches=Switches(mask_bytes=mask_bytes))
    case.check(step, window)
    assert breaks == list(range(1, len(masks) + 1)), "one graph break after each block"
    assert sum(mask.shape[2] for mask in masks) == step.row_length
    assert len(masks) > 1
    for mask in masks:
        assert mask.nbytes <= mask_bytes or mask.shape[2] == 1


def test_a_row_beyond_the_kernels_limit_is_refused():
    case, pad = case_of([2], [0], 9)
    step = prefill_step(case, pad)
    table = torch.empty(1, 64, 1, 1, device="meta")
    rows = prefill.query_blocks(step, 1_000_000, table)
    assert all(last - first == 1 for first, last in rows)
    with pytest.raises(ValueError, match=f"the kernel takes {MASK_LIMIT}"):
        prefill.query_blocks(step, 5_000_000, table)


def test_the_index_is_made_once_per_step_where_it_fits(monkeypatch):
    made = []
    columns = prefill.relative.columns
    monkeypatch.setattr(prefill.relative, "columns", lambda *a: (made.append(1), columns(*a))[1])
    case, pad = case_of([21], [19], 9)
    for switches, count in ((Switches(), 1), (Switches(step_hoist=False), 3)):
        made.clear()
        step = prefill_step(case, pad, switches=switches)
        for _ in range(3):
            case.answer(step, 9)
        assert len(made) == count
