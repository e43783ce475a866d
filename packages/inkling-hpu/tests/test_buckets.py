"""buckets: every shape that a scheduler can ask for has a graph, and little of it is padding."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_hpu.buckets.coverage import (
    choose,
    decode_coverage,
    loaded,
    prefill_coverage,
    unwarmed,
)
from inkling_hpu.buckets.generate import Buckets, generate
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.buckets.sizes import sizes

LONG = Profile(262_144)
PROFILES = st.builds(
    Profile,
    max_model_len=st.integers(2, 400),
    max_num_seqs=st.integers(1, 7),
    chunk=st.integers(2, 90),
    padding_percent=st.integers(25, 60),
    smallest_query=st.just(200),
    smallest_context=st.integers(1, 9),
    smallest_decode=st.integers(1, 20),
    block_size=st.integers(1, 9),
)
LISTED = st.lists(st.tuples(st.just(1), st.integers(1, 40), st.integers(0, 40)), max_size=9)


def prefills(profile):
    """Every prefill of a profile, one by one."""
    for query in range(1, profile.longest_query + 1):
        for blocks in range(-(-(profile.max_model_len - query) // profile.block_size) + 1):
            yield 1, query, blocks


def decodes(profile):
    """Every decode step of a profile, one by one."""
    for batch in range(1, profile.max_num_seqs + 1):
        for blocks in range(batch, batch * profile.request_blocks + 1):
            yield batch, 1, blocks


def smallest_fit(listed, shape):
    """vllm-gaudi's rule, by a plain search through the sorted list."""
    fits = [b for b in sorted(listed) if all(x >= y for x, y in zip(b, shape, strict=True))]
    return fits[0] if fits else None


def padding(shapes, listed, dimension, smallest):
    """The largest padding of a dimension in percent, shape by shape, as coverage.py defines it."""
    worst = Fraction(0)
    for shape in shapes:
        bucket, asked = smallest_fit(listed, shape), shape[dimension]
        if bucket is None or bucket[dimension] == asked:
            continue
        if asked == 0:
            return None
        if bucket[dimension] > smallest:
            worst = max(worst, Fraction(100 * bucket[dimension], asked) - 100)
    return worst


@given(st.integers(1, 300), st.integers(1, 40_000), st.integers(5, 90))
def test_sizes_hold_the_padding_for_every_value_with_as_few_as_can_be(smallest, largest, percent):
    if smallest < largest and 100 * (smallest + 1) // (100 + percent) - 1 >= smallest:
        return
    try:
        found = sizes(smallest, largest, percent)
    except ValueError:
        assert smallest * percent < 100 + percent  # a step of one is more than that there
        return
    assert found[-1] == largest and found == sorted(set(found))
    for below, size in pairwise(found):
        assert 100 * size <= (100 + percent) * (below + 1)
    for below, _, above in zip(found, found[1:], found[2:], strict=False):
        assert 100 * above > (100 + percent) * (below + 1)  # the middle one is needed


def test_a_unit_that_is_too_coarse_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no multiple of 128 below 256 .* within 25 %"):
        sizes(100, 256, 25, unit=128)


@settings(deadline=None, max_examples=60)
@given(PROFILES)
def test_what_is_generated_covers_every_shape_within_the_padding(profile):
    try:
        buckets = generate(profile)
    except ValueError:
        return  # small sizes whose steps exceed the percentage
    for shapes, listed, judge in (
        (prefills(profile), buckets.prefill, prefill_coverage),
        (decodes(profile), buckets.decode, decode_coverage),
    ):
        assert all(choose(listed, shape) for shape in shapes)
        assert judge(profile, buckets).holds(profile.padding_percent)


@settings(deadline=None, max_examples=150)
@given(PROFILES, LISTED)
def test_coverage_of_any_list_is_what_a_walk_over_all_shapes_finds(profile, listed):
    buckets = Buckets(tuple(sorted(listed)), ())
    found = prefill_coverage(profile, buckets)
    shapes = list(prefills(profile))
    assert bool(found.missing) == any(smallest_fit(listed, shape) is None for shape in shapes)
    assert set(found.missing) <= set(shapes)
    assert found.rows.percent == padding(shapes, listed, 1, profile.smallest_query)
    assert found.blocks.percent == padding(shapes, listed, 2, profile.smallest_context)


@settings(deadline=None, max_examples=150)
@given(PROFILES, LISTED)
def test_coverage_of_decodes_is_what_a_walk_over_all_shapes_finds(profile, listed):
    listed = [(query % 8 + 1, 1, blocks * 3 + 1) for _, query, blocks in listed]
    buckets = Buckets((), tuple(sorted(listed)))
    found = decode_coverage(profile, buckets)
    shapes = list(decodes(profile))
    assert bool(found.missing) == any(smallest_fit(listed, shape) is None for shape in shapes)
    assert set(found.missing) <= set(shapes)
    assert found.rows.percent == padding(shapes, listed, 0, 1)
    assert found.blocks.percent == padding(shapes, listed, 2, profile.fewest_decode_blocks)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_no_schedule_leaves_the_covered_shapes(data):
    """Requests of any length, prefix hits of any number of blocks, a shared budget, preemption."""
    profile = Profile(20_000, max_num_seqs=5, chunk=512)
    buckets = generate(profile)
    prompts = data.draw(st.lists(st.integers(1, profile.max_model_len - 1), min_size=1, max_size=8))
    waiting, running = list(prompts), []
    for _ in range(60):
        if waiting and len(running) < profile.max_num_seqs:
            prompt = waiting.pop()
            hit = data.draw(st.integers(0, (prompt - 1) // profile.block_size), label="hit")
            running.append([prompt, hit * profile.block_size])
        budget, lengths = profile.chunk, []
        for one in list(running):
            prompt, computed = one
            if computed >= prompt:
                lengths.append(computed + 1)
                one[1] += 1
                budget -= 1
                if one[1] == profile.max_model_len:
                    running.remove(one)
                continue
            new = min(prompt - computed, budget)
            if new:
                context = -(-computed // profile.block_size)
                assert choose(buckets.prefill, (1, new, context))
                one[1], budget = computed + new, budget - new
        if lengths:
            blocks = sum(-(-length // profile.block_size) for length in lengths)
            assert choose(buckets.decode, (len(lengths), 1, blocks))
        if running and data.draw(st.integers(0, 9), label="preempt") == 0:
            waiting.append(running.pop()[0])


def test_the_longest_requests_of_256k_have_graphs():
    buckets = generate(LONG)
    assert choose(buckets.prefill, (1, 1, 2048)) is not None
    assert choose(buckets.prefill, (1, 2048, 2032)) == (1, 2048, 2035)
    assert choose(buckets.decode, (16, 1, 16 * 2048)) == (16, 1, 32_768)
    assert choose(buckets.decode, (1, 1, 2048)) == (1, 1, 2048)


@pytest.mark.parametrize("length", [16_384, 65_536, 131_072, 262_144])
@pytest.mark.parametrize("chunk", [512, 2048])
def test_the_warm_up_makes_every_graph_of_a_long_context(length, chunk):
    profile = Profile(length, chunk=chunk)
    assert unwarmed(profile, generate(profile)) == []


def test_a_graph_whose_request_would_be_too_long_is_not_warmed():
    profile = Profile(2048)  # 2,048 new tokens leave no room for the three blocks before them
    listed = Buckets(((1, 1024, 0), (1, 1024, 8), (1, 2048, 0), (1, 2048, 3)), ())
    assert unwarmed(profile, listed) == [(1, 2048, 3)]


@pytest.mark.parametrize("lost", ["first", "last", "middle"])
def test_a_graph_that_is_taken_away_is_missed_or_paid_for(lost):
    buckets = generate(LONG)
    place = {"first": 0, "last": -1, "middle": len(buckets.prefill) // 2}[lost]
    left = [b for b in buckets.prefill if b != buckets.prefill[place]]
    assert prefill_coverage(LONG, buckets).holds(25)
    assert not prefill_coverage(LONG, Buckets(tuple(left), buckets.decode)).holds(25)


def test_what_vllm_gaudi_drops_and_cuts():
    """At each limit and beyond it; tests/hpu asks vllm-gaudi's own manager the same at random."""
    profile = Profile(1000, chunk=1200)  # 8 blocks
    beyond = ((1, 1001, 0), (1, 1200, 0), (1, 1000, 9), (2, 601, 0))
    kept = ((1, 1000, 0), (1, 1000, 8), (2, 600, 0))
    decodes = ((2, 1, 1), (2, 1, 2), (2, 1, 15), (2, 1, 17), (2, 1, 40))
    found = loaded(profile, Buckets(tuple(sorted(beyond + kept)), decodes))
    assert found == Buckets(kept, ((2, 1, 2), (2, 1, 15), (2, 1, 16)))


LEAST = {"max_model_len": 2, "max_num_seqs": 1, "chunk": 2, "padding_percent": 1}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_a_profile_of_nothing_is_refused_by_name(name, least):
    with pytest.raises(ValueError, match=f"{name}={least - 1} must be at least {least}"):
        Profile(**{"max_model_len": 8, name: least - 1})


def test_no_prefill_looks_like_a_decode():
    """vllm-gaudi reads a bucket of one query token as one."""
    assert min(query for _, query, _ in generate(Profile(2, chunk=2)).prefill) == 2
