"""The account behind the long-prefill share: what is owed, who is due, in made-up seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_core.serving.pace import Pace


def test_a_chunk_is_paid_for_by_the_steps_after_it():
    pace = Pace(0.5)
    assert pace.is_due()
    pace.took(3.0, is_long=True)
    assert pace.owed == 6.0 and not pace.is_due()
    pace.took(5.0, is_long=False)
    assert not pace.is_due()
    pace.took(1.0, is_long=False)
    assert pace.is_due()


def test_time_without_long_prompts_is_no_credit():
    pace = Pace(0.5)
    pace.took(100.0, is_long=False)
    pace.took(1.0, is_long=True)
    assert pace.owed == 2.0


def test_nothing_is_owed_to_nobody():
    pace = Pace(0.5)
    pace.took(1.0, is_long=True)
    pace.forgive()
    assert pace.is_due()


@given(
    share=st.sampled_from([0.05, 0.25, 0.5, 1.0]),
    chunk=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20),
    decode=st.floats(0.01, 2.0),
)
def test_long_prompts_never_take_more_than_their_share(share, chunk, decode):
    """Over whole rounds, whatever the chunks cost."""
    pace, long, others = Pace(share), 0.0, 0.0
    for seconds in chunk:
        pace.took(seconds, is_long=True)
        long += seconds
        while not pace.is_due():
            pace.took(decode, is_long=False)
            others += decode
    assert long <= share * others * (1 + 1e-9)
    # nor are they held longer than the last step of each round needs
    assert others <= long / share + decode * len(chunk) + 1e-6


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_streams_keep_one_in_one_plus_share(share):
    pace, now, tokens = Pace(share), 0.0, 0
    for _ in range(1000):
        is_long = pace.is_due()
        seconds = 30.0 if is_long else 1.0
        pace.took(seconds, is_long)
        now, tokens = now + seconds, tokens + (0 if is_long else 1)
    assert tokens / now == pytest.approx(1 / (1 + share), abs=0.02)
