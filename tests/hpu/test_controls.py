"""Negative controls on the real runner: each fault moves the answer by a logit gap of 1 or more.

The runs are those of test_inkling.py, which stay within its limit without a fault. Most faults are
put into nano on its own tasks: its window is one block, and its answers hang on single letters.
Two are not seen there and are put into the random model: a second all-reduce, whose factor nano's
norms undo, and a zeroed conv row, which only those tokens notice that follow it at once. The bias
of global layers in a decode step shows where letters are repeated at a distance, lost far keys
where a prefill, not a decode, has to find the needle.
"""

import judging
import nano_cases
import pytest
from faults import FAULTS, sources_with
from runs import Run
from test_inkling import AT_EDGES, CACHED, CHUNKED, FAR, LIMIT, MIXED, mixed, needles

MOVED = 1.0
CHUNKS_AND_HITS = {**CHUNKED, **CACHED}
RUNS = {
    "nano": ("nano", CHUNKS_AND_HITS, [mixed("nano")] * 2),
    "lags": ("nano", CHUNKS_AND_HITS, [nano_cases.batch(nano_cases.exams([("far", 700)]))]),
    "far": ("nano", FAR, [nano_cases.within(needles())]),
    "edges": ("small", CHUNKS_AND_HITS, AT_EDGES),
    "two-ranks": ("small", {**CHUNKS_AND_HITS, "tensor_parallel_size": 2}, [MIXED] * 2),
}
SEEN_IN = {
    "bias-dropped": "lags",
    "bias-off-by-one": "lags",
    "conv-row-zeroed-at-a-chunk-edge": "edges",
    "second-all-reduce": "two-ranks",
    "far-keys-forgotten": "far",
}


@pytest.fixture
def gap(model, reference, execute):
    """Name of a run, sources -> its largest gap."""

    def measure(run, sources=None):
        name, engine, batches = RUNS[run]
        outcome = execute(Run(model(name), batches, engine, sources=sources))
        each = [
            judging.worst_gap(reference(name), batch.prompts, tokens)
            for batch, tokens in zip(batches, outcome.tokens, strict=True)
        ]
        print("largest gap of each batch:", *(f"{one:.3f}" for one in each))
        return max(each)

    return measure


@pytest.mark.parametrize("run", RUNS)
def test_without_a_fault(run, gap):
    assert gap(run) <= LIMIT


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name, gap, tmp_path):
    sources = sources_with(FAULTS[name], tmp_path / "sources")
    assert gap(SEEN_IN.get(name, "nano"), sources) >= MOVED
