"""decode.py and local_decode.py against the law: ordinals, windows, shared and scattered blocks,
padded lists."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from attention_cases import decode_step, make_case, scattered

from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_hpu import decode, local_decode
from inkling_hpu.bias import HIDDEN
from inkling_hpu.builders import build_decode, window_blocks
from inkling_hpu.step import BlockList
from inkling_hpu.switches import Switches

L = 8
PAGED = Switches(local_sdpa=False)
FORMS = pytest.mark.parametrize("switches", [Switches(), PAGED], ids=["sdpa", "paged"])
"""Both ways of local layers; global ones have one."""


def case_of(contexts, extent, *, block_size=L, dtype=torch.float32, seed=0):
    ones = [1] * len(contexts)
    tables, pool = scattered([context // block_size + 1 for context in contexts], seed)
    return make_case(ones, contexts, tables, block_size, pool, extent, dtype, seed), pool


@FORMS
@pytest.mark.parametrize("window", [None, 1, 2, 7, 8, 9, 16, 17, 100], ids=lambda w: f"window-{w}")
@pytest.mark.parametrize("context", [0, 1, 6, 7, 8, 9, 15, 16, 17, 23, 24, 39])
def test_every_position_around_block_edges(context, window, switches):
    case, pad = case_of([context], window or 11)
    case.check(decode_step(case, pad, window or 1, switches=switches), window)


@FORMS
@pytest.mark.parametrize("extent", [1, 5, 9, 20])
def test_an_extent_that_is_not_the_window(extent, switches):
    case, pad = case_of([3, 8, 30], extent)
    case.check(decode_step(case, pad, 9, switches=switches), 9)


@FORMS
@pytest.mark.parametrize("spare", [0, 1, 7], ids=lambda n: f"spare-{n}")
@pytest.mark.parametrize("streams", [1, 3, 5, 16])
@pytest.mark.parametrize("window", [None, 9], ids=["global", "window-9"])
def test_batches_of_unequal_contexts(streams, spare, window, switches):
    draw = random.Random(streams)
    case, pad = case_of([draw.randint(0, 70) for _ in range(streams)], 9, seed=streams)
    case.check(decode_step(case, pad, 9, spare=spare, switches=switches), window)


@FORMS
@pytest.mark.parametrize("window", [None, 20], ids=["global", "window-20"])
def test_a_shared_prefix_block_serves_three_requests(window, switches):
    """The prefix stands at other ordinals of the flat list for each of them."""
    tables = [[6, 2, 5], [6, 2, 1, 4], [6, 3]]
    case = make_case([1, 1, 1], [20, 29, 12], tables, L, 7, 20)
    case.check(decode_step(case, 7, window or 1, switches=switches), window)


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("window", "extent"), [(None, 1024), (512, 512)], ids=["global", "local"])
def test_the_published_geometry(window, extent, dtype, switches):
    case, pad = case_of([0, 127, 128, 640, 1300], extent, block_size=128, dtype=dtype)
    case.check(decode_step(case, pad, 512, switches=switches), window)


@pytest.mark.parametrize("form", [local_decode, decode], ids=["sdpa", "paged"])
@pytest.mark.parametrize("window", [500, 511, 512, 513])
@pytest.mark.parametrize("position", [511, 512, 513, 639, 640, 641, 1023])
def test_the_visible_keys_are_exactly_the_window(position, window, form):
    """Equal scores and one-hot values: the output IS the set of keys seen, each with its share."""
    size, blocks = 128, 9
    table = torch.randperm(8, generator=torch.Generator().manual_seed(position)).tolist()
    table = [block + 1 for block in table]
    step = build_decode(
        [position],
        [table],
        num_rows=2,
        num_blocks=11,
        window=window,
        block_size=size,
        pad_block=blocks,
    )
    values = torch.full((blocks + 1, size, 1, 1024), 37.0)
    for index, block in enumerate(table):
        values[block, :, 0] = torch.eye(1024)[index * size : (index + 1) * size]
    keys, q = torch.zeros_like(values), torch.zeros(2, 1, 1024)
    out = form.attend(q, torch.zeros(2, 1, window), keys, values, step, window)[0, 0]
    expected = torch.zeros(1024)
    expected[max(0, position - window + 1) : position + 1] = 1 / min(window, position + 1)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    ("window", "blocks"), [(512, 5), (500, 5), (513, 5), (514, 6), (1, 1), (2, 2), (129, 2)]
)
def test_room_for_the_blocks_of_a_window(window, blocks):
    """512 keys that end anywhere in a block of 128 lie in 5 blocks, not 4."""
    assert window_blocks(window, 128) == blocks
    worst = max(p // 128 - (p - window + 1) // 128 + 1 for p in range(1000, 1300))
    assert worst == blocks


@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_key_positions_follow_from_ordinals_of_any_truncation(skipped):
    """Two requests at 45 and 18, lists without their first blocks, ids that say nothing."""
    blocks = [[9, 9, 9, 9, 9, 9][skipped:], [9, 9, 9][min(skipped, 2) :]]
    groups = [0] * len(blocks[0]) + [1] * len(blocks[1]) + [-1, -1]
    listed = BlockList(torch.tensor([*blocks[0], *blocks[1], 9, 9]), torch.tensor(groups))
    member = listed.groups_P[:, None] == torch.arange(3)
    first = decode.key_positions(listed, member, torch.tensor([45, 18, 0]), L)
    expected = [L * k for k in range(skipped, 6)] + [L * k for k in range(min(skipped, 2), 3)]
    assert first[:-2, 0].tolist() == expected
    assert first[:-2, -1].tolist() == [start + L - 1 for start in expected]


def test_local_index_math_is_hoisted_out_of_the_layers(monkeypatch):
    made = []
    original = local_decode._index
    monkeypatch.setattr(local_decode, "_index", lambda *a: (made.append(a), original(*a))[1])
    case, pad = case_of([5, 21], 9)
    for switches, count in ((Switches(), 1), (Switches(step_hoist=False), 3)):
        made.clear()
        step = decode_step(case, pad, 9, switches=switches)
        for _ in range(3):
            case.check(step, 9)
        assert len(made) == count


def test_what_the_pad_block_holds_reaches_no_local_row():
    case, pad = case_of([5, 21], 9)
    step = decode_step(case, pad, 9, spare=6)
    before = case.answer(step, 9)
    case.keys_PLGH[pad], case.values_PLGH[pad] = -1e3, 1e3
    assert torch.equal(case.answer(step, 9), before)


def test_rows_without_a_request_are_zeros_and_reach_nobody():
    case, pad = case_of([5, 21], 9)
    step = decode_step(case, pad, 9, spare=6)
    q = torch.randn(step.num_rows, 4, 16)
    rel = torch.randn(step.num_rows, 4, 9)
    out = decode.attend(q, rel, case.keys_PLGH, case.values_PLGH, step, None)
    assert (out[2:] == 0).all()
    case.keys_PLGH[pad], case.values_PLGH[pad] = -1e3, 1e3  # what the pad block holds is nobody's
    assert torch.equal(decode.attend(q, rel, case.keys_PLGH, case.values_PLGH, step, None), out)


@FORMS
def test_a_block_hidden_as_a_whole_is_no_nan(switches):
    """A window list that is longer than the window: its first block is hidden to the last key."""
    case, pad = case_of([30], 5)
    step = decode_step(case, pad, 24, switches=switches)
    for window in (1, 5):
        case.check(step, window)


def test_an_engines_own_paged_attention_may_stand_in(monkeypatch):
    seen = []

    def paged(q_BNH, keys, values, index, bias_PNL):
        seen.append((index.groups_P.tolist(), tuple(bias_PNL.shape), bias_PNL.dtype))
        assert (bias_PNL[index.groups_P < 0] == HIDDEN).all()
        return decode.paged_attention(q_BNH, keys, values, index, bias_PNL)

    monkeypatch.setattr(decode, "kernel", paged)
    case, pad = case_of([5, 21], 9)
    case.check(decode_step(case, pad, 9), None)
    assert seen == [([0, 1, 1, 1, -1, -1, -1], (7, 4, L), torch.float32)]


def test_index_math_is_hoisted_out_of_the_layers(monkeypatch):
    made = []
    original = decode.decode_index
    monkeypatch.setattr(decode, "decode_index", lambda *a: (made.append(a), original(*a))[1])
    case, pad = case_of([5, 21], 9)
    for switches, count in ((PAGED, 2), (replace(PAGED, step_hoist=False), 6)):
        made.clear()
        step = decode_step(case, pad, 9, switches=switches)
        answers = [case.answer(step, window) for _ in range(3) for window in (9, None)]
        assert len(made) == count
        assert_within(
            answers[-1], case.expected(None), tolerance("rel_attention", torch.float32), "global"
        )
