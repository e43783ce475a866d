"""`inkling plan device=gaudi`: the card's memory, the pool, step times, and changes that work."""

import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.config import PRESETS
from inkling_core.config.named import config_of
from inkling_core.doctor.settings import DoctorSettings
from inkling_core.doctor.subject import Machine, Subject
from inkling_core.plan.command import changes
from inkling_core.plan.settings import PlanSettings
from inkling_core.weights.info import GIB
from inkling_hpu.kv_cache import PageBytes
from inkling_hpu.plan.card import CardMemory
from inkling_hpu.plan.latency import MEASURED, RATES, StepModel
from inkling_hpu.plan.planner import GAUDI

SMALL = PlanSettings(
    model="inkling_small",
    device="gaudi",
    cards=8,
    max_model_len=262144,
    max_num_batched_tokens=2048,
)
CONFIG = PRESETS["inkling_small"]
PUBLISHED = PageBytes(65_536, 50_688)  # of the reference deployment, at tensor parallel 8
asked = st.builds(
    replace,
    st.just(SMALL),
    cards=st.integers(1, 20),
    tensor_parallel=st.none() | st.integers(1, 9),
    max_model_len=st.none() | st.integers(2, 2_000_000),
    max_num_seqs=st.sampled_from([1, 16, 256, 4096]),
    block_size=st.sampled_from([16, 64, 128]),
    memory_gib=st.none() | st.floats(1, 900),
    gpu_memory_utilization=st.floats(0.05, 1),
    graph_reserved_mem=st.floats(0, 0.9),
    num_gpu_blocks_override=st.none() | st.integers(1, 20_000),
)


def plan(**more):
    one = replace(SMALL, **more)
    assert GAUDI.problems(one, CONFIG) == []
    return GAUDI.plan(one, CONFIG)


@settings(max_examples=60, deadline=None)
@given(asked)
def test_a_plan_adds_up_or_is_refused_with_changes_that_work(one):
    problems = GAUDI.problems(one, CONFIG)
    if not problems:
        found = GAUDI.plan(replace(one, max_num_seqs=min(one.max_num_seqs, 16)), CONFIG)
        assert found.fitting(found.max_model_len).in_pool >= found.servers >= 1
        assert all(0 < step.low_ms < step.ms < step.high_ms for step in found.steps)
        return
    assert all(problem.text and problem.ways for problem in problems)
    offered = changes(GAUDI, one, CONFIG)
    assert offered
    for change in offered:
        assert GAUDI.problems(replace(one, **change), CONFIG) == [], change


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 40), st.integers(2, 200_000))
def test_more_cards_never_hold_fewer_tokens_nor_longer_requests_more(cards, length):
    first, more = plan(cards=cards), plan(cards=cards + 1)
    assert first.pool_tokens <= more.pool_tokens
    assert first.fitting(length).in_pool >= first.fitting(length + 1).in_pool
    assert first.fitting(length).in_pool <= more.fitting(length).in_pool
    assert cards == first.servers * first.ranks + first.idle_cards


@settings(max_examples=200, deadline=None)
@given(
    total=st.integers(1, 2**40),
    weights=st.integers(0, 2**40),
    page=st.builds(PageBytes, st.integers(1, 2**20), st.integers(1, 2**20)),
    mask=st.integers(0, 2**31),
    utilization=st.floats(0.01, 1),
    graph_share=st.floats(0, 0.99),
    override=st.none() | st.integers(1, 2**20),
)
def test_parts_of_a_card_are_the_card(**values):
    card = CardMemory(layers=3, **values)
    assert sum(part.num_bytes for part in card.parts()) == card.total
    assert card.blocks >= 0 and card.graphs >= 0
    assert all(part.num_bytes >= 0 for part in card.parts()[:-1])


def test_the_published_layout():
    """65,536 + 50,688 bytes a block and layer; 2,560 blocks are 11.64 GiB and 327,680 tokens."""
    card = CardMemory(int(94.6 * GIB), int(61.4 * GIB), PUBLISHED, 42, 0, override=2560)
    assert card.block == 4_881_408
    pool = sum(part.num_bytes for part in card.parts()[1:3])
    assert pool / GIB == pytest.approx(11.64, abs=0.005)
    assert pool / card.left == pytest.approx(0.35, abs=0.001)


def test_a_tenth_of_the_card_kept_back():
    """What facts call the budget of 23.74 GiB: 5,221 blocks, 668,288 tokens, two of 256K."""
    left, budget = 33.2 * GIB, 23.74 * GIB
    card = CardMemory(
        int(94.6 * GIB), int(61.4 * GIB), PUBLISHED, 42, 0, budget / left, graph_share=0.0
    )
    assert card.blocks + 1 == pytest.approx(5221, abs=1)  # one of them is the pad block


def test_our_own_blocks_are_the_published_ones_or_smaller():
    """A layout of conv rows that costs less may come; one that costs more may not."""
    from inkling_hpu.plan.planner import _card

    page = _card(SMALL, CONFIG, 8).page
    assert page.kv == PUBLISHED.kv and page.rows <= PUBLISHED.rows


def test_blocks_are_what_vllm_gaudi_makes_of_what_weights_leave():
    card = CardMemory(1000, 200, PageBytes(3, 2), 2, 0, utilization=0.5, graph_share=0.25)
    assert card.blocks == 800 * 0.5 * 0.75 // 10 - 1 == 29
    assert (card.graphs, card.padding) == (100, 14)
    assert card.spare == 800 - 290 - 100 - 14


@pytest.mark.parametrize("length", [65536, 131072, 262144])
def test_inkling_small_on_eight_cards(length):
    found = plan(max_model_len=length)
    parts = {part.name: part.num_bytes / GIB for part in found.parts}
    print(length, found.pool_tokens, parts, found.buckets["warm_up_minutes"])
    assert parts["weights"] == pytest.approx(61.4, abs=0.6)
    assert found.buckets["ok"] and found.buckets["max_model_len"] == length
    assert found.pool_tokens == plan(max_model_len=2048).pool_tokens >= 327_680
    assert found.fitting(length).in_pool == (found.blocks - 1) * 128 // length


def test_sixteen_cards_are_two_servers():
    one, two = plan(), plan(cards=17)
    assert (two.servers, two.ranks, two.idle_cards) == (2, 8, 1)
    assert two.pool_tokens == 2 * one.pool_tokens and two.parts == one.parts
    assert two.fitting(8192).at_once == 2 * one.fitting(8192).at_once == 32


def test_inkling_is_refused_with_a_reason_and_a_way_out():
    one, config = replace(SMALL, model="inkling"), PRESETS["inkling"]
    problems = GAUDI.problems(one, config)
    assert [problem.key for problem in problems] == ["tensor_parallel", "weights"]
    split, weights = problems
    assert "1 and 2 KV heads per rank on local and global layers" in split.text
    assert "GiB of weights" in weights.text and "on a card of 94.62 GiB" in weights.text
    assert changes(GAUDI, one, config) == [{"model": "inkling_small"}]


@pytest.mark.parametrize(
    ("asked", "key", "needles", "smallest"),
    [
        ({"cards": 4}, "weights", ["GiB of weights", "94.62 GiB"], {"cards": 8}),
        (
            {"tensor_parallel": 4},
            "weights",
            ["GiB of weights"],
            {"tensor_parallel": 8},
        ),
        ({"tensor_parallel": 3}, "tensor_parallel", ["does not divide"], {"tensor_parallel": 8}),
        ({"block_size": 64}, "block_size", ["16, 128"], {"block_size": 128}),
        ({"max_model_len": 2**21}, "max_model_len", ["1048576"], None),
        ({"num_gpu_blocks_override": 2000}, "pool", ["2000"], {"num_gpu_blocks_override": 2049}),
        ({"gpu_memory_utilization": 0.1}, "pool", ["needs 2049"], None),
        ({"gpu_memory_utilization": 1.0}, "room", ["than the card has"], None),
        ({"num_gpu_blocks_override": 9000}, "room", ["9000 blocks"], None),
    ],
)
def test_one_thing_wrong(asked, key, needles, smallest):
    one = replace(SMALL, **asked)
    problems = GAUDI.problems(one, CONFIG)
    assert [problem.key for problem in problems] == [key]
    assert all(needle in problems[0].text for needle in needles), problems[0].text
    found = changes(GAUDI, one, CONFIG)
    assert found and (smallest is None or smallest in found), found
    for change in found:
        ((name, value), *more) = change.items()
        if name in ("gpu_memory_utilization", "num_gpu_blocks_override") and not more:
            step = 0.01 if name.startswith("gpu") else 1
            nearer = value + (step if getattr(one, name) > value else -step)
            assert GAUDI.problems(replace(one, **{name: nearer}), CONFIG)


def test_the_step_model_is_the_least_squares_line():
    """Figures of the facts: 20.2 ms and 1.59 ms a stream, residuals -1.0 +0.7 +0.8 -0.5."""
    model = StepModel.fitted()
    assert (model.t0, model.c) == (pytest.approx(20.17, abs=0.005), pytest.approx(1.587, abs=5e-4))
    assert [round(error, 1) for error in model.residuals().values()] == [-1.0, 0.7, 0.8, -0.5]
    for streams, rate in RATES.items():
        low, high = model.interval(streams)
        assert low < MEASURED[streams] == 1000 / rate < high


def test_what_is_left_out_is_predicted_by_the_others():
    errors = StepModel.fitted().left_out()
    assert [round(error, 1) for error in errors.values()] == [-2.3, 1.1, 1.1, -3.6]
    assert all(abs(errors[s]) > abs(StepModel.fitted().residuals()[s]) for s in MEASURED)


def test_the_interval_is_students():
    """By hand: s = 1.13 ms, 4.303 of them, at the mean of the streams widened by a quarter."""
    model = StepModel.fitted()
    s = (sum(e**2 for e in model.residuals().values()) / 2) ** 0.5
    low, high = model.interval(1)
    assert (high - low) / 2 == pytest.approx(4.3027 * s * (1.25 + 6.25**2 / 126.75) ** 0.5, 1e-4)


@given(st.integers(1, 4096))
def test_the_interval_is_positive_and_grows_away_from_the_figures(streams):
    model = StepModel.fitted()
    low, high = model.interval(streams)
    assert 0 < low < model.ms(streams) < high
    if streams >= 8:
        assert high - low < model.interval(streams + 1)[1] - model.interval(streams + 1)[0]


def test_the_term_that_fails_is_named():
    notes = " ".join(plan().notes)
    assert "the term that fails is the constant 1.59 ms a stream" in notes
    assert "-2.3 at 1, +1.1 at 4, +1.1 at 8, -3.6 at 16" in notes
    slopes = [slope for *_, slope in StepModel.fitted().slopes()]
    assert slopes == sorted(slopes)


def test_nothing_is_said_about_the_speed_of_what_nobody_timed():
    found = GAUDI.plan(replace(SMALL, model="nano", max_model_len=None), config_of("nano"))
    assert found.steps == () and "not known for nano" in " ".join(found.notes)


def test_the_doctor_reads_the_launch_command_to_the_end():
    words = shlex.split(plan(num_gpu_blocks_override=2560).command)
    arguments = words[words.index("vllm.entrypoints.openai.api_server") + 1 :]
    subject = Subject.of(DoctorSettings(arguments=shlex.join(arguments)), Machine(environ={}))
    asked = subject.settings
    assert (asked.tensor_parallel, asked.max_model_len, asked.block_size) == (8, 262144, 128)
    assert (asked.max_num_seqs, asked.max_num_batched_tokens) == (16, 2048)
    assert subject.more == {"num_gpu_blocks_override": 2560}
    assert all("_" not in word for word in subject.ignored if word.startswith("--"))
