"""Negative controls on the real runner: each fault moves the answer by a logit gap of 1 or more.

The same run without a fault stays within the limit, so the runs of test_inkling.py can fail.
"""

import judging
import pytest
from faults import FAULTS, sources_with
from prompts import of_lengths
from runs import Batch, Run

LIMIT, MOVED = 0.1, 1.0
VOCABULARY = 280
# Lengths across chunk edges and beyond nano's window of 128 (one block).
LENGTHS = (6, 40, 129, 300, 500)
CHUNKED = {"max_num_batched_tokens": 128}
TWO_RANKS = {**CHUNKED, "tensor_parallel_size": 2}


def gap(model, reference, execute, engine, sources):
    batch = Batch(of_lengths(LENGTHS, VOCABULARY), 16)
    outcome = execute(Run(model("nano"), [batch], engine, sources=sources))
    worst = judging.worst_gap(reference("nano"), batch.prompts, outcome.tokens[0])
    print(f"largest gap {worst:.3f}")
    return worst


@pytest.mark.parametrize("engine", [CHUNKED, TWO_RANKS], ids=["TP1", "TP2"])
def test_without_a_fault(engine, model, reference, execute):
    assert gap(model, reference, execute, engine, None) <= LIMIT


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name, model, reference, execute, tmp_path):
    sources = sources_with(FAULTS[name], tmp_path / "sources")
    engine = TWO_RANKS if name == "second-all-reduce" else CHUNKED
    assert gap(model, reference, execute, engine, sources) >= MOVED
