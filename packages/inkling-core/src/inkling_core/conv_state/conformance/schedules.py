"""Random schedules for the fuzz test: requests that share prefixes, arriving, aborted, preempted.

Everything follows from a `Scenario`, so a failing one can be kept and replayed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from inkling_core.conv_state.conformance.engine import MiniEngine, Request, Scheduled
from inkling_core.conv_state.conformance.sequences import TokenSequence, branch


@dataclass(frozen=True)
class Scenario:
    """taps: kernel size. blocks: pool size without the null block, in units of the longest request
    (1: every second request forces a preemption). Other names as in MiniEngine."""

    taps: int
    block_size: int
    budget: int
    requests: int
    blocks: int
    max_running: int
    seed: int

    @property
    def longest(self) -> int:
        """Longest sequence, in tokens: four blocks and a bit."""
        return 4 * self.block_size + self.taps

    @property
    def num_blocks(self) -> int:
        """Pool size with the null block."""
        return 1 + self.blocks * (self.longest // self.block_size + 1)


def engine_for(scenario: Scenario) -> MiniEngine:
    """A fresh engine for the scenario."""
    return MiniEngine(
        scenario.block_size, scenario.num_blocks, scenario.budget, scenario.max_running
    )


def steps(scenario: Scenario, engine: MiniEngine) -> Iterator[tuple[list[Scheduled], int]]:
    """Every step of the scenario as (parts in packing order, padding tokens)."""
    rng = random.Random(scenario.seed)
    arrivals = family(rng, scenario)
    while arrivals or engine.waiting or engine.running:
        for _ in range(rng.choice([0, 1, 1, 4, 9])):
            if arrivals:
                engine.add(arrivals.pop())
        if engine.running and rng.random() < 0.05:
            engine.abort(rng.choice(engine.running))
        if engine.running and rng.random() < 0.05:
            engine.preempt(engine.running[-1])
        parts = engine.step()
        rng.shuffle(parts)  # engines order a batch by their own rules, not by arrival
        if parts:
            yield parts, rng.choice([0, 0, 1, scenario.block_size, 7])


def family(rng: random.Random, scenario: Scenario) -> list[Request]:
    """Requests whose prompts extend each other or branch off, most often at or beside an edge.

    Half of the time the shortest arrive first, so that one step may chain hits: each request then
    starts after the block that the one before it fills.
    """
    size, longest = scenario.block_size, scenario.longest
    sequences = [TokenSequence(_tokens(rng, rng.randint(1, longest)))]
    while len(sequences) < scenario.requests:
        stem = rng.choice(sequences)
        edge = size * rng.randint(0, len(stem) // size)
        near_edge = edge + rng.choice([-2, -1, 0, 0, 0, 1, 2])
        keep = min(max(0, rng.choice([near_edge, len(stem)])), len(stem))
        length = min(longest, max(1, keep + rng.choice([0, 1, size, size + 1, 2 * size, longest])))
        sequences.append(branch(stem, keep, _tokens(rng, length - keep)))
    rng.shuffle(sequences)
    if rng.random() < 0.5:
        sequences.sort(key=len, reverse=True)  # arrivals are taken from the end
    return [
        Request(sequence, max(1, len(sequence) - rng.choice([0, 0, 1, 2, size])))
        for sequence in sequences
    ]


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(50) for _ in range(count)]
