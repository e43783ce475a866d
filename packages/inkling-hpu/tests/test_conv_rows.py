"""conv_rows.py: the conformance suite, one forward per request, and a simulation of chunks, hits,
padding and decode; then the bytes of a page."""

from __future__ import annotations

import pytest
import torch

from inkling_core.config import PRESETS
from inkling_core.conv_state import ConvLayout, Stream
from inkling_core.conv_state.conformance import (
    ConvStoreConformance,
    MiniEngine,
    Replay,
    Request,
    TokenSequence,
)
from inkling_core.conv_state.conformance.replay import hit_depths
from inkling_core.conv_state.conformance.schedules import Scenario, engine_for, steps
from inkling_core.parallel import TensorParallel
from inkling_core.step import Step
from inkling_core.weights.tiny import TINY
from inkling_hpu.builders import build_decode, build_prefill
from inkling_hpu.conv_hoist import WeighedHistory
from inkling_hpu.conv_rows import HpuConvStore, StepRows
from inkling_hpu.kv_cache import HpuKVCache, page_bytes
from inkling_hpu.step import HpuStep

NAN = float("nan")


class OnGaudi:
    """HpuConvStore behind the suite's interface: a core `Step` becomes a prefill or a decode step
    with NaN in its padding, behind the tokens of each row and in rows of its own."""

    def __init__(self, store: HpuConvStore) -> None:
        self.store, self.pad_block = store, len(store.rows[0]) - 2

    def plan(self, step: Step) -> tuple[Step, HpuStep, StepRows]:
        padded = self.padded(step)
        return step, padded, self.store.plan(padded)

    def padded(self, step: Step) -> HpuStep:
        tables = [step.block_table_QM[q].tolist() for q in range(step.num_requests)]
        common = {"block_size": step.block_size, "pad_block": self.pad_block}
        if step.contexts and set(step.lengths) == {1} and min(step.contexts) > 0:
            return build_decode(
                step.contexts,
                tables,
                num_rows=len(tables) + 2,
                num_blocks=sum(c // step.block_size + 1 for c in step.contexts),
                window=1,
                **common,
            )
        return build_prefill(
            step.lengths,
            step.contexts,
            tables,
            num_rows=len(tables) + 1,
            row_length=max(step.lengths, default=1) + 3,
            num_context_blocks=max((c // step.block_size + 1 for c in step.contexts), default=0),
            **common,
        )

    def exchange(self, layer, stream, x_TC, plan):
        packed, step, rows = plan
        x_QSC = x_TC.new_full((step.num_rows, step.row_length, x_TC.shape[1]), NAN)
        for q, length in enumerate(packed.lengths):
            x_QSC[q, :length] = x_TC[packed.starts[q] : packed.starts[q + 1]]
        found = self.store.exchange(layer, stream, x_QSC.flatten(0, 1), rows)
        history_QJC = found.history_QJC if isinstance(found, WeighedHistory) else found
        return history_QJC[: packed.num_requests]


class Forwards(Replay):
    """A scheduled step as vllm-gaudi runs it: prompts without context together, then one prefill
    after the other, whoever fills a block before those who hit it, then one decode batch."""

    def step(self, parts, padding=0):
        depths = hit_depths(parts, self.block_size)
        self.counts["same-step hits"] += sum(depth > 0 for depth in depths)
        self.counts["chained hits"] += sum(depth > 1 for depth in depths)
        for group in forwards(parts, self.block_size) or [[]]:
            self.counts[f"forwards of {len(group)}"] += 1
            super().step(group, padding)


def forwards(parts, block_size):
    """Groups of parts, each of them one forward."""
    fresh = [part for part in parts if part.context == 0]
    later = scheduling_order([part for part in parts if part.context], block_size)
    read = {
        part.table[part.context // block_size - 1]
        for part in later
        if not part.context % block_size
    }
    quiet = [
        part
        for part, depth in zip(later, hit_depths(later, block_size), strict=True)
        if part.length == 1 and depth == 0 and part.table[part.context // block_size] not in read
    ]
    alone = [[part] for part in later if part not in quiet]
    return [group for group in ([fresh] if fresh else []) + alone + [quiet] if group]


def scheduling_order(parts, block_size):
    """A request is scheduled after whoever fills the block that it starts behind."""
    waiting, ordered = list(parts), []
    while waiting:
        filled = {
            part.table[block]: part
            for part in waiting
            for block in range(
                part.context // block_size, -(-(part.context + part.length) // block_size)
            )
        }
        for part in waiting:
            behind = part.table[(part.context - 1) // block_size] if part.context else None
            if filled.get(behind, part) is part:
                ordered.append(part)
                waiting.remove(part)
                break
        else:
            raise AssertionError("requests that wait for each other")
    return ordered


class TestRows(ConvStoreConformance[OnGaudi]):
    """Float32 rows; the suite's R1 to R7 with an engine that runs a step as several forwards."""

    driver = Forwards
    fuzz_examples = 60

    def make_store(self, layout, num_layers, num_blocks):
        return OnGaudi(spoiled(layout, num_layers, num_blocks, torch.float32))

    def rows(self, store, layer):
        return store.store.layer_rows(layer)[: store.pad_block]


class Bf16Rows(TestRows):
    """Rows of the model's dtype, as they are served; not collected as a suite of its own."""

    __test__ = False
    x_dtype = torch.bfloat16

    def make_store(self, layout, num_layers, num_blocks):
        return OnGaudi(spoiled(layout, num_layers, num_blocks, torch.bfloat16))


def spoiled(layout, num_layers, num_blocks, dtype):
    """NaN in every row that a rule must not read, the pad block's too; only the zero row is 0."""
    store = HpuConvStore.allocate(layout, num_layers, num_blocks, dtype)
    for rows in store.rows:
        rows[: num_blocks + 1] = NAN
    return store


@pytest.mark.parametrize("case", range(20))
def test_simulated_serving(case):
    """Chunks, prefix hits, shared prefixes, padding, decode over block edges, preemption: every
    history and every row against the dense recomputation, with four taps."""
    suite = (TestRows if case % 2 else Bf16Rows)()
    scenario = Scenario(
        taps=4,
        block_size=(4, 5, 8, 16)[case % 4],
        budget=(16, 30, 60)[case % 3],
        requests=16,
        blocks=6,
        max_running=6,
        seed=1000 + case,
    )
    replay = suite.replay(scenario.block_size, scenario.num_blocks)
    engine = engine_for(scenario)
    for parts, padding in steps(scenario, engine):
        replay.step(parts, padding)
    assert replay.counts["tokens"] > 30 and replay.counts["edge starts"] > 0


def test_a_batch_decodes_over_block_edges():
    replay = TestRows().replay(4, 40)
    engine = MiniEngine(4, 40, budget=60)
    for salt in range(6):
        engine.add(Request(TokenSequence(range(100 * salt, 100 * salt + 12 + salt)), 3 + salt))
    while parts := engine.step():
        replay.step(parts)
    assert replay.counts["forwards of 6"] >= 9  # the prompts, then all decode together


def test_the_zero_row_is_never_written():
    suite = TestRows()
    replay = suite.replay(4, 12)
    scenario = Scenario(4, 4, 20, 6, 3, 4, seed=5)
    for parts, padding in steps(scenario, engine_for(scenario)):
        replay.step(parts[:], padding)
    for rows in replay.store.store.rows:
        assert (rows[-1] == 0).all()


def test_streams_out_of_order_are_refused():
    layout = ConvLayout(4, (2, 2, 3, 3))
    store = HpuConvStore.allocate(layout, 1, 4, torch.float32)
    step = build_prefill(
        [2], [0], [[1]], num_rows=1, row_length=2, num_context_blocks=0, block_size=4, pad_block=4
    )
    plan = store.plan(step)
    with pytest.raises(RuntimeError, match="order K, V, ATTN, MLP"):
        store.exchange(0, Stream.V, torch.zeros(2, 2), plan)
    store.exchange(0, Stream.K, torch.zeros(2, 2), plan)
    with pytest.raises(RuntimeError, match="stream MLP after 1 others"):
        store.exchange(0, Stream.MLP, torch.zeros(2, 3), plan)


def test_rows_of_another_shape_are_refused():
    layout = ConvLayout(4, (2, 2, 3, 3))
    with pytest.raises(ValueError, match=r"run 0 have shape \(5, 3, 9\)"):
        HpuConvStore([torch.zeros(5, 3, 9)], layout)
    with pytest.raises(ValueError, match="all layers share blocks and dtype"):
        HpuConvStore([torch.zeros(5, 3, 10), torch.zeros(6, 3, 10)], layout)


def test_a_page_is_keys_values_and_one_row():
    """Inkling-Small on eight ranks: 65,536 + 50,688 bytes per block and layer."""
    page = page_bytes(PRESETS["inkling_small"], 8, 128, torch.bfloat16)
    assert page == (65_536, 50_688)
    assert sum(page) * 42 == 4_881_408  # a block of all layers


def test_page_bytes_are_what_is_allocated():
    for size in (1, 2):
        page = page_bytes(TINY, size, 16, torch.float32)
        tp = TensorParallel(0, size)
        kv = HpuKVCache.allocate(TINY, 9, 16, torch.float32, tp)
        layout = ConvLayout.from_config(TINY, size)
        rows = HpuConvStore.allocate(layout, 1, 9, torch.float32).rows[0]
        assert page.kv == kv.keys[0][0].nbytes + kv.values[0][0].nbytes
        assert page.rows == rows[0].nbytes
