"""prefill.py against the law: positions, windows, padding, parts of the keys, query blocks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from attention_cases import GARBAGE, make_case, prefill_step, scattered

from inkling_hpu import markers, prefill
from inkling_hpu.switches import MASK_LIMIT, Switches

L = 8
FULL_CONTEXT = Switches(local_window_prefill=False, near_far=False)
"""One mask over whole contexts, on local layers too: what the short ways are held to."""


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
@pytest.mark.parametrize("context", [0, 500, 640, 1000, 2304, 2690])
@pytest.mark.parametrize(("window", "extent"), [(None, 1024), (512, 512)], ids=["global", "local"])
def test_the_published_geometry(context, window, extent, dtype):
    case, pad = case_of([129], [context], extent, block_size=128, dtype=dtype)
    step = prefill_step(case, pad, spare=1, far=10 if context > 2303 else 0, reach=1024)
    assert step.keys.far_QF.shape[1] == (10 if context > 2303 else 0)
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


def calls_of(monkeypatch):
    """Arguments of every attention call from now on, in order."""
    seen = []
    for name in ("fsdpa", "fsdpa_lse"):
        body = getattr(markers, name)
        monkeypatch.setattr(markers, name, lambda *a, body=body: (seen.append(a), body(*a))[1])
    return seen


def test_local_layers_fetch_their_window_only(monkeypatch):
    calls = calls_of(monkeypatch)
    case, pad = case_of([16], [2000], 512, block_size=128)
    for switches, keys in ((Switches(), 512 + 19), (FULL_CONTEXT, 19 * 128 + 19)):
        case.answer(prefill_step(case, pad, switches=switches), 512)
        (call,) = calls
        assert call[1].shape[2] == keys and call[3].shape == (2, 4, 19, keys)
        calls.clear()


@pytest.mark.parametrize("number", range(40))
def test_parts_of_the_keys_equal_one_mask_over_all(number):
    """Forty random geometries, one request: far blocks where it has some, an edge with padding."""
    draw = random.Random(number)
    size, extent = draw.choice([4, 8, 16]), draw.randint(1, 30)
    length, context = draw.randint(1, 300), draw.randint(0, 12 * size)
    reach = -(-(extent - 1) // size) * size
    far = draw.randint(0, max(0, (context - reach) // size))
    case, pad = case_of([length], [context], extent, block_size=size, seed=number)
    spare = draw.randint(0, 3)
    parts = prefill_step(case, pad, spare=spare, far=far, reach=reach)
    assert parts.keys.far_QF.shape[1] == far
    whole = prefill_step(case, pad, spare=spare, switches=FULL_CONTEXT)
    torch.testing.assert_close(
        case.answer(parts, None), case.answer(whole, None), rtol=0, atol=1e-5
    )
    case.check(parts, None)


@pytest.mark.parametrize("context", [95, 96, 97, 103, 104, 120])
def test_what_each_part_is_given(context, monkeypatch):
    """Far keys are real, all of them, and past every bias; no mask per head is wider than near."""
    calls = calls_of(monkeypatch)
    extent, far = 17, 10  # reach 16: far from context 96 on
    case, pad = case_of([300], [context], extent)
    step = prefill_step(case, pad, far=far, reach=16)
    case.check(step, None)
    split = context >= 96
    found = [
        (call[1].shape[2], None if call[3] is None else tuple(call[3].shape)) for call in calls
    ]
    rest = step.keys.blocks_QM.shape[1]
    edge = ((rest - 2) * L, (1, 1, 128, (rest - 2) * L))
    near = (16 + 303, (1, 4, 303, 16 + 303))
    assert found == [*([(80, None)] if split else []), edge, near]
    if split:
        keys = case.keys_PLGH[step.keys.far_QF[0]].flatten(0, 1)
        assert torch.equal(calls[0][1][0].transpose(0, 1), keys) and (keys != GARBAGE).all()


def test_rows_of_unequal_contexts_share_an_edge_and_have_no_far_blocks():
    case, pad = case_of([5, 12, 1], [100, 3, 61], 9)
    step = prefill_step(case, pad, far=2, reach=8)
    assert step.keys.far_QF.shape == (3, 0)
    case.check(step, None)


@pytest.mark.parametrize("mask_bytes", [1, 3000, 9000, 20000])
@pytest.mark.parametrize("window", [None, 9], ids=["global", "window-9"])
def test_query_blocks_under_a_budget(mask_bytes, window, monkeypatch):
    breaks, calls = [], calls_of(monkeypatch)
    monkeypatch.setattr(markers, "graph_break", lambda: breaks.append(len(calls)))
    case, pad = case_of([21], [19], 9)
    near_far = Switches(mask_bytes=mask_bytes)
    for switches in (near_far, replace(near_far, near_far=False)):
        calls.clear()
        breaks.clear()
        step = prefill_step(case, pad, switches=switches)
        case.check(step, window)
        masks = [call[3] for call in calls if call[3].shape[1] == 4]
        edges = len(calls) - len(masks)
        assert edges == (window is None and switches.near_far)
        assert breaks == list(range(1 + edges, len(calls) + 1)), "a graph break after each block"
        assert sum(mask.shape[2] for mask in masks) == step.row_length
        assert len(masks) > 1
        for mask in masks:
            assert 2 * mask.nbytes <= mask_bytes or mask.shape[2] == 1


def test_a_row_beyond_the_kernels_limit_is_refused():
    case, pad = case_of([2], [0], 9)
    step = prefill_step(case, pad)
    rel = torch.empty(1, 64, 1, 1, device="meta")
    rows = prefill.query_blocks(step, 1_000_000, rel)
    assert all(last - first == 1 for first, last in rows)
    with pytest.raises(ValueError, match=f"the kernel takes {MASK_LIMIT}"):
        prefill.query_blocks(step, 5_000_000, rel)


@pytest.mark.parametrize("name", ["hidden", "near_slots", "edge_mask"])
def test_what_depends_on_the_step_alone_is_made_once(name, monkeypatch):
    made, body = [], getattr(prefill, name)
    monkeypatch.setattr(prefill, name, lambda *a: (made.append(1), body(*a))[1])
    case, pad = case_of([21], [19], 9)
    cut = Switches(mask_bytes=1000)  # into 24 blocks, and what they hide is not kept
    each = 24 * 3 if name == "hidden" else 1
    for switches, count in ((Switches(step_hoist=False), 3), (Switches(), 1), (cut, each)):
        made.clear()
        step = prefill_step(case, pad, switches=switches)
        for _ in range(3):
            case.answer(step, None)
        assert len(made) == count
