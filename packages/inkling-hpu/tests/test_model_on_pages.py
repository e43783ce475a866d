"""The whole decoder on the HPU back end, over the paging simulator, against the reference decoder.

The limit is the table's for a float32 model, 1e-5 on logits of standard deviation about 1.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from paging_simulator import GaudiRunner, serve

from inkling_core.backend import REFERENCE, Backend
from inkling_core.conv_state.conformance import MiniEngine, Request, Scheduled, TokenSequence
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.parity.tolerances import tolerance
from inkling_core.weights.tiny import TINY, random_tensors
from inkling_hpu.backend import HPU, backend
from inkling_hpu.switches import Switches

L = 8
CONFIG = TINY.replace(num_hidden_layers=4, local_layer_ids=(0, 1, 3))
"""One dense and three expert layers, one of them global."""
LIMIT = tolerance("model", torch.float32).max_abs
SWITCHES = {
    "defaults": Switches(),
    "all-off": Switches(
        local_window_prefill=False,
        near_far=False,
        single_reduce=False,
        step_hoist=False,
        conv_hoist=False,
        local_sdpa=False,
        shared_in_kernel=False,
    ),
    "one-row-masks": Switches(mask_bytes=1),
}


def decoder(backend: Backend) -> Decoder:
    built = Decoder(CONFIG, backend)
    own = {name for name, _ in built.named_parameters()}
    named = ((s.name.removeprefix("model.llm."), t) for s, t in random_tensors(CONFIG, seed=0))
    return built.load_weights((name, t) for name, t in named if name in own)


@pytest.fixture(scope="module")
def hpu() -> Decoder:
    return decoder(HPU)


@pytest.fixture(scope="module")
def reference() -> Decoder:
    return decoder(REFERENCE)


def tokens(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 300, (length,), generator=generator).tolist()


def dense(reference: Decoder, sequence: TokenSequence) -> torch.Tensor:
    """`[length, V]` logits of the whole sequence in one reference forward."""
    logits = TokenGenerator(reference, len(sequence), L).feed(sequence.tokens)
    assert 0.5 < logits.std() < 2
    return logits


def check(reference: Decoder, served: dict[TokenSequence, torch.Tensor]) -> None:
    """Every position that was computed; the last one of each request was, whatever was hit."""
    for sequence, logits in served.items():
        computed = ~logits.isnan().any(dim=-1)
        assert computed[-1]
        gap = (logits - dense(reference, sequence))[computed].abs().max()
        assert gap <= LIMIT, f"{gap:.2e} after {len(sequence)} tokens"


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_batched_chunked_prefill_and_decode(reference, switches):
    runner = GaudiRunner(decoder(backend(switches)), L, 60, switches, merge=3)
    engine = MiniEngine(L, 60, budget=29, max_running=16)
    requests = [
        Request(TokenSequence(tokens(n + 20, seed)), n)
        for seed, n in enumerate((1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 40))
    ]
    check(reference, serve(runner, engine, requests))
    assert "decode 12" in runner.forwards and "prefill 3x4" in runner.forwards


@pytest.mark.parametrize("first", range(1, 2 * L + 2))
def test_every_chunk_offset_around_a_block_edge(hpu, reference, first):
    sequence = TokenSequence(tokens(45, seed=9))
    want = dense(reference, sequence)
    table = (5, 3, 9, 1, 7, 2)
    for second in (1, 2, 3, L - 1, L, L + 1, 2 * L + 1):
        runner = GaudiRunner(hpu, L, 10)
        done = 0
        for length in (first, second, 45 - first - second):
            part = Scheduled(sequence, done, length, table)
            (logits,) = runner.prefill([part])
            gap = (logits - want[done : done + length]).abs().max()
            assert gap <= LIMIT, f"{gap:.2e} in a chunk of {length} after {done}"
            done += length


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_a_long_prompt_has_far_keys(hpu, reference, switches):
    """Chunks of 29 up to 400 tokens; of a bucket of 64 blocks every request is sure of 28."""
    runner = GaudiRunner(hpu, L, 80, switches)
    engine = MiniEngine(L, 80, budget=29)
    check(reference, serve(runner, engine, [Request(TokenSequence(tokens(403, seed=2)), 400)]))
    assert set(runner.far_blocks) == ({0, 4, 12, 28} if switches.near_far else {0})


@pytest.mark.parametrize("keep", [7, 8, 9, 15, 16, 17, 24, 31, 32])
def test_prefix_hits(hpu, reference, keep):
    runner = GaudiRunner(hpu, L, 40)
    engine = MiniEngine(L, 40, budget=64)
    stem = tokens(35, seed=3)
    first = serve(runner, engine, [Request(TokenSequence(stem), 33)])
    again = [Request(TokenSequence(stem[:keep] + tokens(11, seed=s)), keep + 4) for s in (4, 5)]
    second = serve(runner, engine, again)
    assert engine.counts["hit blocks"] >= 2 * (keep // L)
    check(reference, first | second)


def test_hits_on_blocks_that_the_same_step_fills(hpu, reference):
    runner = GaudiRunner(hpu, L, 60)
    engine = MiniEngine(L, 60, budget=200)
    stem = tokens(26, seed=6)
    requests = [
        Request(TokenSequence(stem[:keep] + tokens(6, seed=keep)), keep + 2)
        for keep in (8, 16, 17, 24, 26, 24)
    ]
    served = serve(runner, engine, requests)
    assert engine.counts["hit blocks"] >= 9
    check(reference, served)


def test_preemption_and_resume(hpu, reference):
    runner = GaudiRunner(hpu, L, 12)
    engine = MiniEngine(L, 12, budget=30, max_running=4)
    stem = tokens(9, seed=7)
    requests = [
        Request(TokenSequence(stem + tokens(24, seed=10 + s)), 12 + 3 * s) for s in range(5)
    ]
    served = serve(runner, engine, requests)
    assert engine.counts["preempted"] >= 2 and engine.counts["hit blocks"] >= 4, engine.counts
    check(reference, served)


def test_sixteen_streams_decode_over_shared_and_scattered_blocks(hpu, reference):
    runner = GaudiRunner(hpu, L, 100)
    engine = MiniEngine(L, 100, budget=400, max_running=16)
    stem = tokens(24, seed=20)
    warm = serve(runner, engine, [Request(TokenSequence([*stem, 1]), 25)])
    requests = [
        Request(TokenSequence(stem[: L * (s % 4)] + tokens(20, seed=50 + s)), L * (s % 4) + 3)
        for s in range(16)
    ]
    served = serve(runner, engine, requests)
    assert "decode 16" in runner.forwards
    assert engine.counts["hit blocks"] >= 16
    check(reference, warm | served)


@pytest.mark.parametrize("streams", [2, 5, 16])
def test_a_stream_does_not_depend_on_the_batch(hpu, streams):
    sequences = [TokenSequence(tokens(20, seed=s)) for s in range(streams)]
    ids = itertools.count(1)
    tables = [tuple(next(ids) for _ in range(3)) for _ in range(streams)]
    answers = []
    for batch in (streams, 1):
        runner = GaudiRunner(hpu, L, 50)
        parts = list(zip(sequences, tables, strict=True))[:batch]
        for sequence, table in parts:
            runner.prefill([Scheduled(sequence, 0, 19, table)])
        answers.append(runner.decode([Scheduled(s, 19, 1, t) for s, t in parts])[0])
    torch.testing.assert_close(*answers, rtol=0, atol=1e-5)
