"""skew.py beside a gather by distance: the same bits wherever a query may look."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_hpu.bias import HIDDEN, columns, table, tail
from inkling_hpu.skew import hidden, skewed

SIZES = st.integers(1, 40)


def gathered(rel_QNSR, contexts_Q, reach, window):
    """The mask by an index: column of each pair out of a table that holds 0 and HIDDEN too."""
    length = rel_QNSR.shape[2]
    query = reach + torch.arange(length)[:, None]
    distance_SK = query - torch.arange(reach + length)
    there_QSK = distance_SK <= query + contexts_Q[:, None, None] - reach  # positions from 0 on
    index_QSK = columns(distance_SK.expand(there_QSK.shape), there_QSK, rel_QNSR.shape[3], window)
    full = table(rel_QNSR, tail(rel_QNSR.dtype, rel_QNSR.device))
    return full.gather(-1, index_QSK[:, None].expand(-1, rel_QNSR.shape[1], -1, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@settings(max_examples=60, deadline=None)
@given(
    SIZES, st.integers(0, 40), SIZES, st.none() | SIZES, st.lists(st.integers(0, 60), min_size=1)
)
def test_pad_and_cut_is_the_gather_bit_for_bit(dtype, length, reach, extent, window, contexts):
    contexts_Q = torch.tensor(contexts[:3])
    draw = torch.Generator().manual_seed(length)
    rel = torch.randn(len(contexts_Q), 2, length, extent, generator=draw).to(dtype)
    mask = skewed(rel, reach) + hidden(contexts_Q, (0, length), reach, window, dtype)
    want = gathered(rel, contexts_Q, reach, window)
    seen = want > HIDDEN / 2
    assert torch.equal(mask > HIDDEN / 2, seen)
    assert torch.equal(mask[seen], want[seen])
    assert mask.isfinite().all()


def test_a_block_of_rows_is_a_part_of_the_whole():
    rel, contexts = torch.randn(2, 3, 11, 5), torch.tensor([4, 30])
    whole = skewed(rel, 8) + hidden(contexts, (0, 11), 8, 7, torch.float32)
    part = skewed(rel[:, :, 4:9], 12) + hidden(contexts, (4, 9), 8, 7, torch.float32)
    assert torch.equal(part.clamp(min=HIDDEN), whole[:, :, 4:9, :17].clamp(min=HIDDEN))


def test_nothing_is_indexed():
    """Two passes over the bias and one addition, whatever is copied to flatten."""
    from inkling_hpu.counter.mode import OpCounter

    rel = torch.randn(1, 2, 9, 5)
    shared = hidden(torch.tensor([6]), (0, 9), 8, None, torch.float32)
    with OpCounter() as counter:
        skewed(rel, 8) + shared
    assert sorted(key.op for key, sums in counter.tally.rows.items() if sums.ops) == [
        "add",
        "constant_pad_nd",
        "flip",
    ]
