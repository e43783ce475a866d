"""`inkling plan` on a CPU, and what every plan keeps: parts add up, changes that are named work."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkling_core.cli.main import main
from inkling_core.config import PRESETS
from inkling_core.config.named import config_of
from inkling_core.plan.change import STEPS
from inkling_core.plan.command import changes
from inkling_core.plan.cpu import CPU, MIB
from inkling_core.plan.record import Part
from inkling_core.plan.settings import PlanSettings

NANO = PlanSettings(memory_gib=4, max_model_len=4096)
LARGE = replace(NANO, memory_gib=100, max_model_len=2)
CONFIG = config_of("nano")


def plan(**asked):
    settings = replace(NANO, **asked)
    assert CPU.problems(settings, CONFIG) == []
    return CPU.plan(settings, CONFIG)


asked = st.builds(
    PlanSettings,
    memory_gib=st.floats(0.01, 64),
    cards=st.integers(1, 9),
    tensor_parallel=st.none() | st.integers(1, 9),
    max_model_len=st.none() | st.integers(2, 50_000),
    max_num_seqs=st.integers(1, 600),
    max_num_batched_tokens=st.integers(2, 600),
    kv_cache_mib=st.integers(1, 4096),
    block_size=st.sampled_from([1, 16, 127, 128]),
)


@settings(max_examples=80, deadline=None)
@given(asked)
def test_a_plan_adds_up_or_is_refused_with_changes_that_work(one):
    problems = CPU.problems(one, CONFIG)
    if not problems:
        found = CPU.plan(one, CONFIG)  # Plan refuses parts that do not add up
        assert found.fitting(found.max_model_len).in_pool >= found.servers >= 1
        return
    assert all(problem.text and problem.ways for problem in problems)
    offered = changes(CPU, one, CONFIG)
    assert offered
    for change in offered:
        assert CPU.problems(replace(one, **change), CONFIG) == [], change


@settings(max_examples=60, deadline=None)
@given(asked)
def test_a_single_change_is_the_smallest_of_its_setting(one):
    if not CPU.problems(one, CONFIG):
        return
    for change in changes(CPU, one, CONFIG):
        ((setting, value), *more) = change.items()
        before = getattr(one, setting)
        if more or before is None or setting not in STEPS or abs(value - before) <= 1:
            continue
        nearer = value + (1 if before > value else -1)
        assert CPU.problems(replace(one, **{setting: nearer}), CONFIG), change


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 32_768), st.integers(1, 2048), st.sampled_from([1, 2, 4]))
def test_more_memory_or_shorter_requests_never_fit_fewer(length, mib, ranks):
    def at(length, mib, cards):
        one = replace(LARGE, kv_cache_mib=mib, cards=cards, tensor_parallel=ranks)
        found = CPU.plan(one, CONFIG)
        return found.pool_tokens, found.fitting(length).in_pool, found.fitting(length).at_once

    first = at(length, mib, ranks)
    assert first[0] <= at(length, mib + 1, ranks)[0] < at(length, mib + 1, 2 * ranks)[0]
    assert first[1] >= at(length + 1, mib, ranks)[1] and first[2] >= at(length + 1, mib, ranks)[2]
    assert first[2] <= first[1] and (first[1] + 1) * length > 0


def test_requests_leave_the_null_block_alone():
    found = plan(kv_cache_mib=512)
    usable = found.blocks - 1
    assert found.fitting(usable * 128).in_pool == 1
    assert found.fitting(usable * 128 + 1).in_pool == 0
    assert found.fitting(129).in_pool == usable // 2
    assert found.fitting(129).at_once == found.max_num_seqs


def test_the_pool_is_cut_into_keys_values_and_rows():
    parts = {part.name: part.num_bytes for part in plan(kv_cache_mib=64).parts}
    blocks = plan(kv_cache_mib=64).blocks
    slots = 2 * 2 * CONFIG.head_dim * 4 * 128 * CONFIG.num_hidden_layers
    assert parts["keys and values"] == blocks * slots
    pool = parts["keys and values"] + parts["conv rows"] + parts["pool, less than a block"]
    assert pool == 64 * MIB and 0 <= parts["pool, less than a block"] < pool // blocks
    assert parts["conv rows"] > 0


def test_parts_that_do_not_add_up_are_no_plan():
    found = plan()
    with pytest.raises(ValueError, match="do not add up"):
        replace(found, card_bytes=found.card_bytes + 1)
    with pytest.raises(ValueError, match="do not add up: a -1, b 1"):
        replace(found, parts=(Part("a", -1), Part("b", 1)), card_bytes=0)


def test_the_lengths_are_halves_down_to_a_block():
    assert plan(max_model_len=4096).lengths() == [4096, 2048, 1024, 512, 256]
    assert plan(max_model_len=300).lengths() == [300, 150]
    assert plan(max_model_len=5).lengths() == [5]


@pytest.mark.parametrize(
    ("asked", "key", "needles", "smallest"),
    [
        ({"kv_cache_mib": 2}, "pool", ["4 blocks", "max_model_len=4096"], {"kv_cache_mib": 14}),
        ({"max_model_len": 65536}, "length", ["65536", "32768"], {"max_model_len": 32768}),
        ({"tensor_parallel": 3, "cards": 4}, "ranks", ["num_att"], {"tensor_parallel": 4}),
        ({"tensor_parallel": 2}, "cards", ["tensor_parallel=2", "cards=1"], {"cards": 2}),
        ({"max_num_seqs": 600}, "step", ["512", "600"], {"max_num_batched_tokens": 600}),
        ({"memory_gib": 0.25}, "memory", ["0.50 GiB", "0.25 GiB"], {"memory_gib": 1}),
    ],
)
def test_one_thing_wrong(asked, key, needles, smallest):
    one = replace(NANO, **asked)
    (problem,) = CPU.problems(one, CONFIG)
    assert problem.key == key and all(needle in problem.text for needle in needles)
    found = changes(CPU, one, CONFIG)
    assert smallest in found, found


def test_several_things_wrong_are_cured_together():
    one = replace(NANO, tensor_parallel=3, cards=3, max_num_seqs=600, kv_cache_mib=2)
    assert [problem.key for problem in CPU.problems(one, CONFIG)] == ["ranks", "step"]
    found = changes(CPU, one, CONFIG)
    assert found and all(len(change) == 3 for change in found)
    for change in found:
        assert change["tensor_parallel"] == 2 and CPU.problems(replace(one, **change), CONFIG) == []


def test_processes_share_the_memory():
    one = replace(NANO, cards=4, memory_gib=2, kv_cache_mib=500)
    assert CPU.problems(one, CONFIG) == []
    found = CPU.problems(replace(one, memory_gib=1.9), CONFIG)
    assert [problem.key for problem in found] == ["memory"]
    assert "of which 4 share 1.90 GiB" in found[0].text


def test_the_smallest_change_comes_first():
    """A quarter of the memory is missing: moving the pool by a little beats a larger machine."""
    one = replace(NANO, kv_cache_mib=520, memory_gib=0.5)
    assert list(changes(CPU, one, CONFIG)[0]) == ["kv_cache_mib"]
    one = replace(NANO, kv_cache_mib=8192, memory_gib=7)
    assert changes(CPU, one, CONFIG) == [{"kv_cache_mib": 7163}, {"memory_gib": 9}]


def test_free_memory_is_looked_at_once(monkeypatch, capsys):
    """It changes between two looks, and the parts of a plan have to add up."""
    free = iter([4 * 2**30, 2**20])
    monkeypatch.setattr("inkling_core.doctor.fit.available_memory", lambda machine: next(free))
    assert main(["plan", "max_model_len=4096", "format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["card_bytes"] == 4 * 2**30


def test_a_model_in_bfloat16_and_the_embedded_one_in_float32():
    small = replace(NANO, model="inkling_small", memory_gib=600, kv_cache_mib=8192)
    found = CPU.plan(small, PRESETS["inkling_small"])
    assert found.parts[0].num_bytes == pytest.approx(2 * 276e9 * 0.962, rel=0.01)
    assert plan().parts[0].num_bytes == pytest.approx(4 * 1.14e6, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gpu_memory_utilization=0.5", "means nothing on device=cpu"),
        ("device=gaudi kv_cache_mib=64", "means nothing on device=gaudi"),
        ("graph_reserved_mem=1 device=gaudi", "must lie in 0..1"),
        ("gpu_memory_utilization=0 device=gaudi", "must lie above 0"),
        ("memory_gib=0", "memory_gib=0.0 must lie above 0"),
        ("memory_gib=.nan", "memory_gib"),
        ("max_model_len=1", "must be at least 2"),
        ("model=inkling_smal", "did you mean 'inkling_small'?"),
        ("max_modl_len=5", "did you mean 'max_model_len'?"),
        ("device=gaudy", "did you mean 'gaudi'?"),
    ],
)
def test_mistakes(arguments, message, capsys):
    assert main(["plan", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


def test_json_says_what_the_table_says(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    line = ["plan", "memory_gib=4", "max_model_len=4096"]
    assert main([*line, "format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(line) == 0
    table = capsys.readouterr().out
    rows = dict(re.findall(r"│ ([\w ,]+?) +│ +([\d,]+) │", table))
    told = {name: int(number.replace(",", "")) for name, number in rows.items()}
    memory = {part["name"]: part["num_bytes"] for part in found["parts"]}
    requests = {f"{one['length']:,}": one["in_pool"] for one in found["requests"]}
    assert told == {**memory, "card": found["card_bytes"], **requests}
    assert f"{found['pool_tokens']:,} tokens ({found['blocks']:,} blocks" in table
    assert table.rstrip().endswith(found["command"])


def test_a_refusal_in_words_and_as_json(capsys):
    line = ["plan", "memory_gib=4", "max_model_len=4096", "kv_cache_mib=2"]
    assert main(line) == 1
    assert "the smallest change that makes it possible: kv_cache_mib=14" in capsys.readouterr().out
    assert main([*line, "format=json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["possible"] is False and found["changes"][0] == {"kv_cache_mib": 14}
    assert [problem["key"] for problem in found["problems"]] == ["pool"]


def test_the_plot_has_a_bar_for_each_length(capsys):
    assert main(["plan", "memory_gib=4", "max_model_len=4096", "format=plot"]) == 0
    lines = capsys.readouterr().out.splitlines()
    bars = [line.count("█") for line in lines if "requests" in line and "█" in line]
    assert len(bars) == 5 and bars == sorted(bars)


def test_the_command_starts_what_was_planned():
    from inkling_core.serving.settings import ServeSettings

    words = plan(kv_cache_mib=64, max_num_seqs=4).command.split()
    assert words[:2] == ["inkling", "serve"]
    given = dict(word.split("=") for word in words[2:])
    made = ServeSettings(**{name: int(value) for name, value in given.items()})
    assert (made.kv_cache_mib, made.max_num_seqs, made.max_model_len) == (64, 4, 4096)


def test_nothing_is_assumed_about_memory_that_cannot_be_read(monkeypatch):
    from inkling_core.doctor import fit

    monkeypatch.setattr(fit, "available_memory", lambda machine: None)
    with pytest.raises(ValueError, match="give memory_gib="):
        CPU.problems(replace(NANO, memory_gib=None), CONFIG)
