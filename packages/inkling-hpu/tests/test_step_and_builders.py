"""step.py and builders.py: the tensors of a step by hand, the hoist, and what is refused."""

from __future__ import annotations

import pytest
import torch

from inkling_hpu.buckets.coverage import choose
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.builders import (
    FarBlocks,
    build_decode,
    build_prefill,
    conv_rows,
    reach_of,
    sure_far_blocks,
    touched_blocks,
    window_blocks,
    window_list,
    zero_row,
)
from inkling_hpu.step import ConvRows, HpuStep, PrefillKeys
from inkling_hpu.switches import Switches

PREFILL = {"num_rows": 2, "row_length": 6, "num_context_blocks": 3, "block_size": 4, "pad_block": 9}
DECODE = {"num_rows": 3, "num_blocks": 6, "window": 5, "block_size": 4, "pad_block": 9}


def test_a_prefill_step_by_hand():
    step = build_prefill([5], [6], [[7, 2, 5]], **PREFILL)
    assert not step.is_decode and step.row_length == 6 and step.starts == (0, 6, 12)
    assert step.positions_T.tolist() == [6, 7, 8, 9, 10, 0] + [0] * 6
    assert step.slots_T.tolist() == [10, 11, 20, 21, 22, 36] + [36] * 6
    assert step.keys.contexts_Q.tolist() == [6, 0] and step.keys.lengths_Q.tolist() == [5, 0]
    assert step.keys.blocks_QM.tolist() == [[7, 2, 9], [9, 9, 9]]
    assert step.rows.load_Q.tolist() == [2, zero_row(9)]
    assert step.rows.store_QR.tolist() == [[2, 5, 9], [9, 9, 9]]
    assert step.rows.ends_QR.tolist() == [[2, 5, 0], [0, 0, 0]]


FAR = {**PREFILL, "num_rows": 1, "num_context_blocks": 5, "num_far_blocks": 2, "reach": 4}
TABLE = [7, 2, 5, 1, 3]


@pytest.mark.parametrize(("context", "far"), [(11, 0), (12, 2), (14, 2)])
def test_far_blocks_lie_before_every_bias(context, far):
    """Two blocks of four end at 8, and a bias reaches back four positions: from 12 on."""
    keys = build_prefill([1], [context], [TABLE], **FAR).keys
    padded = TABLE[: -(-context // 4)] + [9] * 5
    assert keys.far_QF.tolist() == [padded[:far]]
    assert keys.blocks_QM.tolist() == [padded[far:5]]
    assert keys.every_QB.tolist() == [padded[:5]]


def test_far_blocks_are_far_for_every_row_or_for_none():
    def far(contexts, **more):
        arguments = {**FAR, "num_rows": 2, **more}
        tables = [TABLE, TABLE[::-1]][: len(contexts)]
        return build_prefill([1] * len(contexts), contexts, tables, **arguments).keys.far_QF.shape

    assert far([12, 19]) == (2, 2)
    assert far([19, 11]) == (2, 0)
    assert far([19]) == (2, 0), "a padding row has no context"
    assert far([12, 19], switches=Switches(near_far=False)) == (2, 0)


@pytest.mark.parametrize(
    ("bucket", "far"),
    [((1, 6, 0), 0), ((1, 6, 4), 0), ((1, 6, 8), 2), ((1, 6, 16), 6), ((1, 8, 16), 0)],
)
def test_a_bucket_has_more_blocks_than_the_next_smaller_one(bucket, far):
    """Of the same rows and query tokens: (1, 8) has no smaller one."""
    listed = [(1, 6, 0), (1, 6, 4), (1, 6, 8), (1, 6, 16), (1, 8, 16), (2, 6, 12)]
    assert sure_far_blocks(listed, bucket, reach=8, size=4) == far


def test_a_bucket_keeps_its_far_blocks_when_others_are_listed_later():
    """Or its next step would have other shapes, and so another graph."""
    far, bucket = FarBlocks(reach=8, block_size=4), (1, 256, 32)
    assert far.of([(1, 256, 16), bucket], bucket) == 14
    assert far.of([(1, 256, 16), (1, 256, 24), bucket], bucket) == 14
    assert far.of([(1, 256, 16), (1, 256, 24)], (1, 256, 24)) == 14


@pytest.mark.parametrize(
    "buckets", [generate(Profile(n)).prefill for n in (9_000, 70_000)], ids=len
)
def test_every_request_of_a_listed_bucket_has_its_far_blocks(buckets):
    """So that a bucket has one graph: tried on the fewest positions that get it."""
    seen = 0
    for bucket in buckets:
        far = sure_far_blocks(buckets, bucket, reach=1024, size=128)
        least = next(
            b for b in range(bucket[2] + 1) if choose(buckets, (1, bucket[1], b)) == bucket
        )
        context = max(0, (least - 1) * 128 + 1)
        step = build_prefill(
            [1],
            [context],
            [range(least + 1)],
            num_rows=1,
            row_length=bucket[1],
            num_context_blocks=bucket[2],
            block_size=128,
            pad_block=9999,
            num_far_blocks=far,
            reach=1024,
        )
        assert step.keys.far_QF.shape == (1, far)
        seen += far > 0
    assert seen > 20


@pytest.mark.parametrize(("positions", "reach"), [(1, 0), (2, 4), (5, 4), (6, 8)])
def test_positions_that_the_first_query_may_look_back_to(positions, reach):
    assert reach_of(positions, 4) == reach


def test_a_decode_step_by_hand():
    step = build_decode([6, 8], [[7, 2], [4, 1, 3]], **DECODE)
    assert step.is_decode and step.starts == (0, 1, 2, 3)
    assert step.positions_T.tolist() == [6, 8, 0] and step.slots_T.tolist() == [10, 12, 36]
    assert step.keys.every.blocks_P.tolist() == [7, 2, 4, 1, 3, 9]
    assert step.keys.every.groups_P.tolist() == [0, 0, 1, 1, 1, -1]
    # 6 sees 2..6: both blocks; 8 sees 4..8: not the first one
    assert step.keys.window.blocks_P.tolist() == [7, 2, 1, 3, 9, 9, 9, 9, 9][: 3 * 2]
    assert step.rows.load_Q.tolist() == [2, 1, 10]  # 8 opens a block: the row of the one before
    assert step.rows.store_QR.tolist() == [[2], [3], [9]]
    assert step.rows.ends_QR.tolist() == [[1], [1], [0]]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_room_for_every_block_that_a_chunk_touches(length):
    worst = max((c + length - 1) // 4 - c // 4 + 1 for c in range(8))
    assert touched_blocks(length, 4) == worst
    rows = conv_rows([length], [3], [[1, 2, 3, 4]], 1, length, 4, 9)
    assert rows.ends_QR.max() == length


@pytest.mark.parametrize("window", [1, 2, 4, 5, 9])
def test_window_lists_begin_with_the_block_of_the_oldest_key(window):
    for position in range(20):
        listed = window_list([position, 0], [range(10), [7]], 3, 4, 99, window)
        expected = sorted({p // 4 for p in range(max(0, position - window + 1), position + 1)})
        room = window_blocks(window, 4)
        padded = [*expected, *[99] * (room - len(expected))]
        assert listed.blocks_P.view(3, -1).tolist() == [
            padded,
            [7] + [99] * (room - 1),
            [99] * room,
        ]
        owners = [[0] * len(expected), [1], []]
        groups = [[*mine, *[-1] * (room - len(mine))] for mine in owners]
        assert listed.groups_P.view(3, -1).tolist() == groups


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: build_prefill([7], [0], [[1, 2]], **PREFILL), "brings 7 tokens, the bucket has 6"),
        (lambda: build_prefill([1], [13], [[1] * 4], **PREFILL), "4 context blocks, the bucket"),
        (lambda: build_prefill([3], [6], [[1, 2]], **PREFILL), "needs 3 blocks of 4, its table"),
        (lambda: build_prefill([1] * 3, [0] * 3, [[1]] * 3, **PREFILL), "for 2 rows"),
        (lambda: build_prefill([1], [0, 0], [[1]], **PREFILL), "1 lengths, 2 contexts"),
        (lambda: build_decode([20], [[1] * 5], **DECODE), "needs 6 blocks of 4"),
        (lambda: build_decode([27], [[1] * 7], **DECODE), "7 key blocks are listed, the bucket"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_contradicting_shapes_are_refused():
    step = build_prefill([5], [6], [[7, 2, 5]], **PREFILL)
    parts = {"rows": step.rows, "keys": step.keys, "block_size": 4}
    with pytest.raises(ValueError, match="do not make 5 rows"):
        HpuStep(step.positions_T, step.slots_T, 5, **parts)
    with pytest.raises(ValueError, match="slots_T has shape"):
        HpuStep(step.positions_T, step.slots_T[:3], 2, **parts)
    rows = ConvRows(step.rows.load_Q, step.rows.store_QR, step.rows.ends_QR[:, :1])
    with pytest.raises(ValueError, match="conv rows are"):
        HpuStep(step.positions_T, step.slots_T, 2, rows, step.keys, 4)
    decode = build_decode([6], [[7, 2]], **DECODE)
    with pytest.raises(ValueError, match="one token a row, not 6 in 3 rows"):
        HpuStep(torch.zeros(6, dtype=torch.int64), torch.zeros(6), 3, decode.rows, decode.keys, 4)


def test_no_number_of_a_step_depends_on_its_values():
    """Two steps of one bucket differ in tensors only, or each would be a graph of its own."""

    def numbers(step):
        keys = step.keys
        tensors = [step.positions_T, step.slots_T, *vars(step.rows).values()]
        if isinstance(keys, PrefillKeys):
            tensors += vars(keys).values()
        else:
            tensors += [*vars(keys.every).values(), *vars(keys.window).values()]
        shapes = [(tuple(t.shape), t.dtype) for t in tensors]
        return shapes, step.num_rows, step.row_length, step.starts, step.block_size

    prefills = [
        build_prefill([n], [c], [[7, 2, 5, 4, 6]], **PREFILL) for n, c in ((1, 0), (6, 3), (2, 12))
    ]
    decodes = [
        build_decode(c, [[7, 2, 5]] * len(c), **DECODE) for c in ([0], [6, 8], [3, 4, 5], [11])
    ]
    for steps in (prefills, decodes):
        assert all(numbers(step) == numbers(steps[0]) for step in steps)


def test_the_hoist_keeps_what_was_made():
    calls = []
    for hoist, count in ((True, 1), (False, 3)):
        calls.clear()
        step = build_decode([6], [[7, 2]], **DECODE, switches=Switches(step_hoist=hoist))
        made = [step.once("key", lambda: calls.append(1) or len(calls)) for _ in range(3)]
        assert len(calls) == count and made[-1] == count
        step.once("other", lambda: calls.append(1))
        assert len(calls) == count + 1
