"""The conformance tests: subclass, give the two hooks, collect with pytest.

Geometry is small and odd (widths 2, 2, 3, 3; two layers) because a store only moves rows; the real
block size 128 appears where edges matter. All tests are deterministic.

What it is not: a measurement of speed, or a proof of the engine's own metadata (serving tests).
"""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from inkling_core.conv_state.conformance.engine import MiniEngine, Request, Scheduled
from inkling_core.conv_state.conformance.replay import Replay
from inkling_core.conv_state.conformance.schedules import Scenario, engine_for, steps
from inkling_core.conv_state.conformance.sequences import TokenSequence, branch, history
from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.protocol import ConvStore
from inkling_core.step import Step

WIDTHS = (2, 2, 3, 3)
TAPS = 4
J = TAPS - 1
Store = TypeVar("Store", bound=ConvStore)


def numbered(length: int, salt: int = 0) -> TokenSequence:
    """A sequence unlike any other with another salt, from its first token on."""
    return TokenSequence(range(salt * 100_000, salt * 100_000 + length))


def scenarios() -> st.SearchStrategy[Scenario]:
    """Small pools, small budgets, small blocks: most steps meet an edge or a shared prefix."""
    return st.integers(2, 5).flatmap(
        lambda taps: st.builds(
            Scenario,
            taps=st.just(taps),
            block_size=st.integers(taps - 1, 9),
            budget=st.integers(1, 80),
            requests=st.integers(2, 10),
            blocks=st.integers(1, 6),
            max_running=st.integers(1, 8),
            seed=st.integers(0, 2**32 - 1),
        )
    )


class ConvStoreConformance(Generic[Store]):
    """Rules R1 to R7 of protocol.py as tests. The two hooks say what is under test."""

    device = "cpu"
    x_dtype = torch.float32
    fuzz_examples = 120
    driver: type[Replay] = Replay  # a subclass, where an engine cuts a step into several forwards

    def make_store(self, layout: ConvLayout, num_layers: int, num_blocks: int) -> Store:
        """A store whose rows are all NaN (the null block's may be anything)."""
        raise NotImplementedError

    def rows(self, store: Store, layer: int) -> Tensor:
        """The packed rows [num_blocks, J, width] of a layer as they are now."""
        raise NotImplementedError

    def replay(
        self, block_size: int, num_blocks: int, *, taps: int = TAPS, num_layers: int = 2
    ) -> Replay:
        """A fresh store with its checker."""
        layout = ConvLayout(taps, WIDTHS)
        store = self.make_store(layout, num_layers, num_blocks)
        return self.driver(
            store,
            lambda layer: self.rows(store, layer),
            layout,
            num_layers,
            block_size,
            x_dtype=self.x_dtype,
            device=self.device,
        )

    @pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 127, 128, 129, 512, 1000])
    def test_chunked_prefill(self, chunk: int) -> None:
        replay = self.replay(block_size=128, num_blocks=11, num_layers=1)
        self._chunks(
            replay, numbered(1100), [chunk] * (1100 // chunk), (3, 9, 1, 7, 2, 8, 4, 10, 5)
        )
        assert replay.counts["tokens"] == 1100

    @pytest.mark.parametrize("block_size", [3, 4, 5, 8, 16])
    def test_every_start_offset_around_an_edge(self, block_size: int) -> None:
        offsets = range(-min(block_size, J + 2), J + 3)
        lengths = [1, 2, 3, 4, 5, block_size - 1, block_size, block_size + 1, 2 * block_size + 1]
        for edge, offset, length in itertools.product((1, 2), offsets, lengths):
            start = edge * block_size + offset
            sequence = numbered(start + length + 5)
            replay = self.replay(block_size, num_blocks=9 + 40 // block_size)
            table = tuple(range(8 + 40 // block_size, 0, -1))
            first = [start] if start else []
            self._chunks(replay, sequence, [*first, length, 5], table)

    @pytest.mark.parametrize("block_size", [3, 4, 8])
    def test_prefix_hits_of_every_length(self, block_size: int) -> None:
        total = 3 * block_size + 2
        for keep in range(total + 1):
            replay = self.replay(block_size, num_blocks=12)
            engine = MiniEngine(block_size, num_blocks=12, budget=64)
            stem = numbered(total)
            self._serve(replay, engine, [stem])
            self._serve(replay, engine, [branch(stem, keep, range(900, 907 - (keep == total)))])
            assert engine.counts["hit blocks"] == keep // block_size
            replay.step([Scheduled(stem, 0, 1, (11,))])  # an unrelated start afterwards

    @pytest.mark.parametrize("keep", [127, 128, 129, 130, 131, 255, 256, 257, 259, 384])
    def test_prefix_hits_around_real_blocks(self, keep: int) -> None:
        replay = self.replay(block_size=128, num_blocks=12, num_layers=1)
        engine = MiniEngine(block_size=128, num_blocks=12, budget=1000)
        stem = numbered(385)
        self._serve(replay, engine, [stem])
        self._serve(replay, engine, [branch(stem, keep, range(900, 902)), stem])
        assert engine.counts["hit blocks"] == keep // 128 + 3

    @pytest.mark.parametrize("budget", [5, 7, 12, 64, 500])
    def test_shared_prefixes_sent_together(self, budget: int) -> None:
        replay = self.replay(block_size=4, num_blocks=40)
        engine = MiniEngine(block_size=4, num_blocks=40, budget=budget)
        stem = numbered(17)
        tails = [branch(stem, keep, range(700 + keep, 709 + keep)) for keep in (16, 12, 9, 8, 4, 3)]
        self._serve(replay, engine, [stem, *tails])
        assert replay.counts["same-step hits"] or budget == 5

    @pytest.mark.parametrize("length", [1, 2, 3, 4])
    @pytest.mark.parametrize("start", [0, 1, 2, 3])
    def test_same_step_hits_chained(self, start: int, length: int) -> None:
        """A fills block 1 from `start`, B hits it and fills 2, C hits both and fills 3, D hits all
        three and brings `length` tokens; in one step, packed in every order."""
        sequence = numbered(17)
        parts = [
            Scheduled(sequence, start, 4 - start, (1,)),
            Scheduled(sequence, 4, 4, (1, 2)),
            Scheduled(sequence, 8, 4, (1, 2, 3)),
            Scheduled(sequence, 12, length, (1, 2, 3, 4)),
        ]
        for order in itertools.permutations(parts):
            replay = self.replay(block_size=4, num_blocks=6)
            if start:
                replay.step([Scheduled(sequence, 0, start, (1,))])
            replay.step(order)
            assert replay.counts["same-step hits"] == 3
            assert replay.counts["chained hits"] == 2
            replay.step([Scheduled(sequence, 12 + length, 1, (1, 2, 3, 4, 5))])

    def test_preemption_and_resume(self) -> None:
        replay = self.replay(block_size=4, num_blocks=10)
        engine = MiniEngine(block_size=4, num_blocks=10, budget=9, max_running=4)
        stem = numbered(9)
        family = [branch(stem, 8, range(500 * i, 500 * i + 14)) for i in range(1, 7)]
        self._serve(replay, engine, family, prompt=10)
        assert engine.counts["preempted"] >= 6
        assert engine.counts["hit blocks"] >= 20  # 12 would do if nothing were ever resumed
        assert engine.counts["finished"] == 6

    def test_blocks_are_reused_by_other_requests(self) -> None:
        replay = self.replay(block_size=4, num_blocks=6)
        engine = MiniEngine(block_size=4, num_blocks=6, budget=6, max_running=2)
        for salt in range(12):
            request = Request(numbered(1 + 3 * salt % 10, salt), prompt=1)
            engine.add(request)
            replay.step(engine.step())
            if salt % 3 == 2 and request in engine.running:
                engine.abort(request)
            self._drain(replay, engine)
        assert engine.pool.reused >= 12

    @pytest.mark.parametrize("padding", [1, 4, 63])
    def test_poisoned_padding(self, padding: int) -> None:
        replay = self.replay(block_size=4, num_blocks=40)
        engine = MiniEngine(block_size=4, num_blocks=40, budget=13)
        stem = numbered(14)
        tails = [branch(stem, keep, range(800 + keep, 806 + keep)) for keep in (12, 9, 8, 5)]
        replay.step([], padding)
        self._serve(replay, engine, [stem, *tails], padding=padding, prompt=8)
        assert replay.counts["padding"] > 10 * padding

    def test_nan_in_one_request_stays_there(self) -> None:
        replay = self.replay(block_size=4, num_blocks=9)
        engine = MiniEngine(block_size=4, num_blocks=9, budget=7, max_running=3)
        bad, good = numbered(13, salt=1), numbered(13, salt=2)
        replay.poisoned.add(bad)
        self._serve(replay, engine, [bad, good], prompt=6)
        for salt in range(3, 9):  # the poisoned blocks get new owners
            self._serve(replay, engine, [numbered(11, salt)], prompt=6)
        assert engine.pool.reused >= 16

    def test_decode_across_edges(self) -> None:
        replay = self.replay(block_size=4, num_blocks=60)
        engine = MiniEngine(block_size=4, num_blocks=60, budget=200)
        prompts = range(1, 9)
        for salt in prompts:
            engine.add(Request(numbered(salt + 11, salt), prompt=salt))
        self._drain(replay, engine)
        assert replay.counts["late rows"] >= 2 * len(prompts)

    @pytest.mark.parametrize("contexts", [[0] * 7, [1, 127, 128, 129, 130, 256, 383]], ids=str)
    def test_mixed_lengths(self, contexts: list[int]) -> None:
        replay = self.replay(block_size=128, num_blocks=80, num_layers=1)
        blocks = iter(range(79, 0, -1))
        parts = []
        for salt, (context, length) in enumerate(
            zip(contexts, [1, 3, 5, 63, 127, 129, 1000], strict=True)
        ):
            sequence = numbered(context + length, salt)
            table = tuple(itertools.islice(blocks, -(-len(sequence) // 128)))
            if context:
                replay.step([Scheduled(sequence, 0, context, table)])
            parts.append(Scheduled(sequence, context, length, table))
        replay.step(parts, padding=3)

    @pytest.mark.parametrize("context", [0, 1, 2, 3, 4, 7, 8])
    def test_batch_of_one_equals_batch_of_many(self, context: int) -> None:
        parts = []
        for salt, length in enumerate([1, 2, 3, 4]):
            sequence, table = (
                numbered(context + length, salt),
                tuple(range(4 * salt + 1, 4 * salt + 5)),
            )
            parts.append(Scheduled(sequence, context, length, table))
        alone, together = (self.replay(block_size=4, num_blocks=18) for _ in range(2))
        for part in parts:
            for replay in (alone, together):
                if context:
                    replay.step([Scheduled(part.sequence, 0, context, part.table)])
            alone.step([part])
        together.step(parts)
        for layer in range(2):
            one, many = alone.rows(layer)[1:], together.rows(layer)[1:]
            assert torch.equal(one.nan_to_num(2.0), many.nan_to_num(2.0)), f"layer {layer}"

    def test_a_layer_with_fewer_kv_heads(self) -> None:
        """Its K and V inputs are narrower than the row's room for them; the streams stay apart."""
        layout = ConvLayout(TAPS, (4, 4, 3, 3))
        store = self.make_store(layout, num_layers=1, num_blocks=6)
        x_SC = numbered(14).raw_inputs(layout, layer=0).to(self.x_dtype)
        for context, length in ((0, 6), (6, 2), (8, 1), (9, 5)):
            step = Step.single(length, context, (3, 1, 5, 2), 4, device=self.device)
            plan = store.plan(step)
            for stream in Stream:
                first = layout.offsets[stream]
                width = 2 if stream in (Stream.K, Stream.V) else 3
                part_SC = x_SC[:, first : first + width]
                x_TC = part_SC[context : context + length].to(self.device)
                got_JC = store.exchange(0, stream, x_TC, plan)[0].cpu()
                wanted_JC = history(part_SC, context, TAPS)
                assert torch.equal(got_JC.float(), wanted_JC), (
                    f"{stream.name} at position {context} differs from the dense recomputation"
                )

    def test_generated_schedules(self) -> None:
        """The fuzz test: `fuzz_examples` scenarios, the same ones in every run."""

        @settings(
            max_examples=self.fuzz_examples,
            derandomize=True,
            database=None,
            deadline=None,
            report_multiple_bugs=False,  # one AssertionError, not a group of them
            suppress_health_check=[HealthCheck.too_slow],  # it times the machine, not the store
        )
        @given(scenarios())
        def check(scenario: Scenario) -> None:
            replay = self.replay(scenario.block_size, scenario.num_blocks, taps=scenario.taps)
            for parts, padding in steps(scenario, engine_for(scenario)):
                replay.step(parts, padding)

        check()

    def _chunks(
        self, replay: Replay, sequence: TokenSequence, chunks: list[int], table: tuple[int, ...]
    ) -> None:
        context = 0
        for chunk in [*chunks, len(sequence) - sum(chunks)]:
            if chunk:
                replay.step([Scheduled(sequence, context, chunk, table)])
            context += chunk

    def _serve(
        self,
        replay: Replay,
        engine: MiniEngine,
        sequences: list[TokenSequence],
        *,
        prompt: int | None = None,
        padding: int = 0,
    ) -> None:
        for sequence in sequences:
            engine.add(Request(sequence, prompt or len(sequence)))
        self._drain(replay, engine, padding)

    def _drain(self, replay: Replay, engine: MiniEngine, padding: int = 0) -> None:
        while parts := engine.step():
            replay.step(parts, padding)
