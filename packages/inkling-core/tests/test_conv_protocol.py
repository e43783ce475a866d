"""ConvPlan: which rows each phase names, by hand, and what is refused."""

import pytest
import torch

from inkling_core.conv_state import ConvPlan
from inkling_core.step import Step


def plan_of(lengths, contexts, tables, block_size=4, taps=4):
    return ConvPlan.from_step(Step.build(lengths, contexts, tables, block_size), taps)


def reads_of(reads):
    return list(zip(reads.requests_P.tolist(), reads.blocks_P.tolist(), strict=True))


def test_a_first_token_reads_no_row():
    plan = plan_of([6], [0], [[7, 5]])
    assert (len(plan.early_reads), len(plan.late_reads)) == (0, 0)
    assert plan.early_writes.blocks_R.tolist() == [7, 5]
    assert plan.early_writes.tokens_RJ.tolist() == [[1, 2, 3], [3, 4, 5]]
    assert not plan.early_writes.from_past_RJ.any()


def test_mid_block_starters_read_early_and_edge_starters_late():
    plan = plan_of([1, 1, 2], [5, 4, 8], [[1, 2], [3, 4], [5, 6, 7]])
    assert reads_of(plan.early_reads) == [(0, 2)]
    assert reads_of(plan.late_reads) == [(1, 3), (2, 6)]


def test_only_short_edge_starters_write_late():
    """Three tokens fill a row of three; with fewer it holds what the edge read brings."""
    plan = plan_of([1, 2, 3, 9], [4, 4, 4, 4], [[1, 2], [3, 4], [5, 6], [7, 8, 9, 10]])
    assert plan.late_writes.blocks_R.tolist() == [2, 4]
    assert plan.late_writes.from_past_RJ.tolist() == [[True, True, False], [True, False, False]]
    assert plan.early_writes.blocks_R.tolist() == [6, 8, 9, 10]
    assert not plan.early_writes.from_past_RJ.any()


def test_a_row_reaches_back_into_its_own_requests_history():
    plan = plan_of([2, 2], [9, 3], [[1, 2, 3], [4, 5]])
    rows = plan.early_writes
    assert rows.blocks_R.tolist() == [3, 4, 5]  # block 4 is filled by one token, 5 gets one
    assert rows.from_past_RJ.tolist() == [
        [True, False, False],
        [True, True, False],
        [True, False, False],
    ]
    assert rows.past_RJ[:, 0].tolist() == [2, 4, 5]  # newest of request 0; last two of request 1
    assert rows.tokens_RJ[:, 2].tolist() == [1, 2, 3]


def test_reads_within_step_tells_same_step_hits_apart():
    assert plan_of([4, 1], [0, 4], [[1], [1, 2]]).reads_within_step
    assert plan_of([2, 1], [2, 4], [[1], [1, 2]]).reads_within_step
    assert not plan_of([4, 1], [0, 4], [[1], [3, 2]]).reads_within_step
    assert not plan_of([1, 1], [7, 4], [[1, 2], [3, 4]]).reads_within_step


def test_a_step_of_padding_only_plans_nothing():
    plan = ConvPlan.from_step(Step.build([], [], [], 4, padded_to=5), taps=4)
    assert (plan.num_requests, plan.num_tokens) == (0, 0)
    assert len(plan.early_writes) + len(plan.late_writes) == 0


def test_refuses_blocks_smaller_than_the_history():
    with pytest.raises(ValueError, match="block_size is 2, must be >= 3 for 4 taps"):
        plan_of([1], [0], [[1]], block_size=2)
    assert plan_of([1], [0], [[1]], block_size=3).history == 3


@pytest.mark.parametrize("block", [0, -1], ids=str)
def test_refuses_an_unallotted_block(block):
    table = torch.tensor([[1, block]])
    step = Step(torch.arange(4, 6), (0, 2), (4,), table, 4)
    with pytest.raises(ValueError, match=f"position 5 of request 0 lies in block {block}"):
        ConvPlan.from_step(step, taps=4)


def test_refuses_two_writers_of_one_block():
    with pytest.raises(ValueError, match=r"blocks \[2\] are written by two requests"):
        plan_of([1, 1], [5, 6], [[1, 2], [1, 2]])
