"""The account behind the long-prefill share: what is owed, who is due, in made-up seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_core.serving.pace import Pace


def run(pace, is_long, began, took):
    pace.began(is_long, began)
    pace.ended(began + took)


def test_a_chunk_is_paid_for_by_the_steps_after_it():
    pace = Pace(0.5)
    assert pace.is_due()
    run(pace, True, began=10.0, took=3.0)
    assert pace.owed == 6.0 and not pace.is_due()
    run(pace, False, began=13.0, took=5.0)
    assert not pace.is_due()
    run(pace, False, began=18.0, took=1.0)
    assert pace.is_due()


def test_time_without_long_prompts_is_no_credit():
    pace = Pace(0.5)
    run(pace, False, began=0.0, took=100.0)
    run(pace, True, began=100.0, took=1.0)
    assert pace.owed == 2.0


def test_one_chunk_at_a_time_where_steps_overlap():
    pace = Pace(1.0)
    pace.began(True, 0.0)
    assert not pace.is_due() and not pace.is_idle()
    pace.began(False, 0.1)  # scheduled while the chunk runs
    pace.ended(4.0)
    assert pace.owed == 4.0
    pace.ended(5.0)  # its own second, not the five since it was scheduled
    assert pace.owed == 3.0 and pace.is_idle()


def test_nothing_is_owed_to_nobody():
    pace = Pace(0.5)
    run(pace, True, began=0.0, took=1.0)
    pace.forgive()
    assert pace.is_due()


@given(
    share=st.sampled_from([0.05, 0.25, 0.5, 1.0]),
    chunk=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20),
    decode=st.floats(0.01, 2.0),
)
def test_long_prompts_never_take_more_than_their_share(share, chunk, decode):
    """Over whole rounds, whatever the chunks cost."""
    pace, now, long, others = Pace(share), 0.0, 0.0, 0.0
    for took in chunk:
        run(pace, True, now, took)
        now, long = now + took, long + took
        while not pace.is_due():
            run(pace, False, now, decode)
            now, others = now + decode, others + decode
    assert long <= share * others * (1 + 1e-9)
    # nor are they held longer than the last step of each round needs
    assert others <= long / share + decode * len(chunk) + 1e-6


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_streams_keep_one_in_one_plus_share(share):
    pace, now, tokens = Pace(share), 0.0, 0
    for _ in range(1000):
        is_long = pace.is_due()
        took = 30.0 if is_long else 1.0
        run(pace, is_long, now, took)
        now, tokens = now + took, tokens + (0 if is_long else 1)
    assert tokens / now == pytest.approx(1 / (1 + share), abs=0.02)
