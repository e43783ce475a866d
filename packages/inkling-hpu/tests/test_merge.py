"""merge.py: parts of the keys, cut anywhere, give what all keys together give."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_hpu.bias import HIDDEN
from inkling_hpu.merge import merged

KEYS = 23


def scores_and_values(seed=0, spread=8.0):
    draw = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(2, 3, 5, KEYS, generator=draw, dtype=torch.float64)
    return scores, torch.randn(2, 3, KEYS, 4, generator=draw, dtype=torch.float64)


def part(scores, values):
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


def cut(scores, values, ends):
    bounds = [0, *sorted(ends), KEYS]  # no end is 0 or KEYS
    return [part(scores[..., a:b], values[:, :, a:b]) for a, b in pairwise(bounds)]


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(1, KEYS - 1)), st.integers(0, 9), st.floats(-40, 40))
def test_parts_are_the_whole_whatever_they_all_add(ends, seed, added):
    scores, values = scores_and_values(seed)
    parts = [(out, lse + added) for out, lse in cut(scores, values, ends)]
    torch.testing.assert_close(merged(parts), part(scores, values)[0], rtol=0, atol=4e-14)


def test_a_part_in_which_a_row_sees_nothing_has_no_share():
    scores, values = scores_and_values()
    hidden = torch.full_like(scores[..., :7], HIDDEN)
    parts = [part(hidden, 1e6 * values[:, :, :7]), part(scores[..., 7:], values[:, :, 7:])]
    assert torch.equal(merged(parts), parts[1][0])


@pytest.mark.parametrize("which", [0, 1])
def test_a_factor_on_the_sums_of_one_part_shows(which):
    """Why the calls must have one mode: 128 on one of them moves nearly all attention there."""
    scores, values = scores_and_values(spread=1.0)
    parts = cut(scores, values, {11})
    out, lse = parts[which]
    parts[which] = (out, lse + torch.tensor(128.0).log())
    assert (merged(parts) - part(scores, values)[0]).abs().max() > 0.3


def test_bfloat16_parts_are_summed_in_float32():
    scores, values = scores_and_values(spread=1.0)
    whole = part(scores, values)[0]
    parts = [(out.bfloat16(), lse.float()) for out, lse in cut(scores, values, {4, 9})]
    found = merged(parts)
    assert found.dtype is torch.bfloat16
    assert (found - whole).abs().max() <= 2**-8 * whole.abs().max()
