"""Step: packing, slots, padding, and the errors that name the request and the way out."""

import pytest
import torch

from inkling_core.step import Step


def test_slots_follow_a_shuffled_block_table():
    step = Step.build([3, 1], [3, 9], [[7, 2], [5, 9, 4]], block_size=4)
    assert step.positions_T.tolist() == [3, 4, 5, 9]
    assert step.slots_T.tolist() == [7 * 4 + 3, 2 * 4, 2 * 4 + 1, 4 * 4 + 1]
    assert (step.starts, step.lengths, step.num_requests) == ((0, 3, 4), (3, 1), 2)


def test_padding_rows_live_in_the_null_block():
    step = Step.build([2], [0], [[3]], block_size=4, padded_to=5)
    assert step.slots_T.tolist() == [12, 13, 0, 0, 0]
    assert step.num_tokens == 2


def test_padding_positions_are_never_used_as_an_index():
    poisoned = torch.tensor([0, 1, -(2**40), 2**40])
    step = Step(poisoned, (0, 2), (0,), torch.tensor([[3]]), 4)
    assert step.slots_T.tolist() == [12, 13, 0, 0]


def test_a_step_of_padding_only_is_allowed():
    step = Step.build([], [], [], block_size=4, padded_to=3)
    assert step.num_requests == 0
    assert step.slots_T.tolist() == [0, 0, 0]


def test_single_equals_build_of_one():
    one, many = Step.single(5, 6, [4, 2, 8], 4), Step.build([5], [6], [[4, 2, 8]], 4)
    assert torch.equal(one.slots_T, many.slots_T)
    assert one.slots_T.tolist() == [10, 11, 32, 33, 34]


def test_entries_past_the_need_are_ignored():
    table = torch.tensor([[3, -1, 10**9]])
    step = Step(torch.tensor([0, 1]), (0, 2), (0,), table, 4)
    assert step.slots_T.tolist() == [12, 13]
    assert Step.build([2], [0], [[3, 0, -1]], 4).slots_T.tolist() == [12, 13]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [4], [[1, 2]], 4), "request 0 has 0 new tokens"),
        (([1], [-1], [[1]], 4), "context -1"),
        (([2], [3], [[1]], 4), "needs 2 blocks of 4, its table has 1"),
        (([1], [4], [[1, 0]], 4), "names block 0"),
        (([1], [0], [[1]], 0), "block_size is 0"),
        (([1, 1], [0], [[1]], 4), "2 lengths, 1 contexts"),
    ],
    ids=["empty", "negative", "short-table", "null-block", "block-size", "ragged"],
)
def test_build_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Step.build(*arguments)


def test_build_refuses_too_little_padding():
    with pytest.raises(ValueError, match="padded_to=2 is below the step's 3 tokens"):
        Step.build([3], [0], [[1]], 4, padded_to=2)


@pytest.mark.parametrize(
    ("positions", "starts", "contexts", "table", "message"),
    [
        (torch.arange(2), (0,), (0,), torch.ones(1, 1).long(), "1 starts for 1 contexts"),
        (torch.arange(2), (1, 2), (0,), torch.ones(1, 1).long(), r"starts\[0\] is 1"),
        (torch.arange(1), (0, 2), (0,), torch.ones(1, 1).long(), "only 1 packed tokens"),
        (torch.arange(2), (0, 2), (0,), torch.ones(2, 1).long(), r"must be \[1, M\]"),
        (torch.arange(2).int(), (0, 2), (0,), torch.ones(1, 1).long(), "positions_T is"),
    ],
    ids=["count", "first", "beyond", "table-shape", "dtype"],
)
def test_construction_refuses(positions, starts, contexts, table, message):
    with pytest.raises(ValueError, match=message):
        Step(positions, starts, contexts, table, 4)
