"""The suite's own parts: the dense recomputation by hand, the engine's rules, and that generated
schedules contain what they are there for."""

import random
from collections import Counter

import pytest
import torch

from inkling_core.conv_state import ConvLayout
from inkling_core.conv_state.conformance import MiniEngine, Request, TokenSequence
from inkling_core.conv_state.conformance.replay import hit_depths
from inkling_core.conv_state.conformance.schedules import Scenario, engine_for, steps
from inkling_core.conv_state.conformance.sequences import branch, history

LAYOUT = ConvLayout(4, (2, 2, 3, 3))


def drawn(count):
    """Scenarios in the ranges that the fuzz test draws from."""
    rng = random.Random(5)
    for seed in range(count):
        taps = rng.randint(2, 5)
        block_size = rng.randint(taps - 1, 9)
        sizes = (rng.randint(1, 80), rng.randint(2, 10), rng.randint(1, 6), rng.randint(1, 8))
        yield Scenario(taps, block_size, *sizes, seed=seed)


def test_history_by_hand():
    x_SC = torch.arange(1.0, 6.0)[:, None]
    assert history(x_SC, 0, 4).flatten().tolist() == [0, 0, 0]
    assert history(x_SC, 2, 4).flatten().tolist() == [0, 1, 2]
    assert history(x_SC, 5, 4).flatten().tolist() == [3, 4, 5]


def test_inputs_agree_on_a_shared_prefix_and_differ_after_it_everywhere():
    stem = TokenSequence(range(20))
    other = branch(stem, 12, [99, *range(13, 20)])
    for layer in range(2):
        a_SC, b_SC = (s.raw_inputs(LAYOUT, layer) for s in (stem, other))
        assert torch.equal(a_SC[:12], b_SC[:12])
        assert (a_SC[12:] != b_SC[12:]).all()


def test_inputs_differ_by_layer_stream_channel_and_position():
    sequence = TokenSequence(range(50))
    values = torch.cat([sequence.raw_inputs(LAYOUT, layer) for layer in (0, 1)], dim=1)
    assert values.unique().numel() == values.numel() == 50 * 20
    assert values.min() >= -1 and values.max() < 1 and 0.5 < values.std() < 0.65


def test_a_block_is_hit_in_the_step_that_fills_it():
    engine = MiniEngine(block_size=4, num_blocks=9, budget=30)
    engine.add(Request(TokenSequence(range(9)), prompt=9))
    engine.add(Request(TokenSequence(range(10)), prompt=10))
    first, second = engine.step()
    assert (first.context, first.length, second.context, second.length) == (0, 9, 8, 2)
    assert first.table[:2] == second.table[:2] and first.table[2] != second.table[2]
    assert hit_depths([first, second], 4) == [0, 1]


def test_the_last_token_of_a_prompt_is_never_a_hit():
    engine = MiniEngine(block_size=4, num_blocks=9, budget=30)
    for _ in range(2):
        engine.add(Request(TokenSequence(range(8)), prompt=8))
    assert [part.context for part in engine.step()] == [0, 4]


def test_engine_refuses_what_can_never_run():
    with pytest.raises(ValueError, match="needs 3 blocks, the pool has 2"):
        MiniEngine(4, num_blocks=3, budget=4).add(Request(TokenSequence(range(9)), prompt=1))
    with pytest.raises(ValueError, match="prompt is 0"):
        Request(TokenSequence([1]), prompt=0)


def test_generated_schedules_obey_the_engines_rules():
    """No two parts of a step write one block; tables cover the step; the null block is nobody's."""
    for scenario in drawn(60):
        for parts, _ in steps(scenario, engine_for(scenario)):
            written = []
            for part in parts:
                first, end = part.context // scenario.block_size, part.context + part.length
                assert part.length >= 1 and len(part.table) * scenario.block_size >= end
                assert 0 not in part.table and len(set(part.table)) == len(part.table)
                written += part.table[first : -(-end // scenario.block_size)]
            assert len(set(written)) == len(written)
            assert sum(part.length for part in parts) <= scenario.budget


def test_generated_schedules_contain_every_kind_of_event():
    counts = Counter()
    for scenario in drawn(150):
        engine = engine_for(scenario)
        for parts, padding in steps(scenario, engine):
            depths = hit_depths(parts, scenario.block_size)
            counts["steps"] += 1
            counts["same-step hits"] += sum(depth > 0 for depth in depths)
            counts["chained"] += sum(depth > 1 for depth in depths)
            counts["padded"] += padding > 0
            counts["decodes"] += sum(part.length == 1 for part in parts)
        counts.update(engine.counts)
        counts["reused"] += engine.pool.reused
    floors = {"same-step hits": 80, "chained": 5, "padded": 500, "decodes": 500, "reused": 200}
    floors |= {"preempted": 40, "aborted": 30, "hit blocks": 800, "finished": 600}
    missed = {name: (counts[name], floor) for name, floor in floors.items() if counts[name] < floor}
    assert not missed
