"""The emulation itself: stock models through vllm-gaudi's runner against HF transformers.

Whatever fails here is the emulation's or vllm-gaudi's fault, not our plugin's.
"""

import judging
import pytest
from prompts import EDGES, of_lengths, sharing
from runs import WARM_UP, Batch, Run

LIMIT = 0.1
VOCABULARY = 512
CASES = {
    "eager": ({}, {}),
    "chunked": ({"max_num_batched_tokens": 128}, {}),
    "synchronous": ({"async_scheduling": False}, {}),
    "eager-mode": ({}, {"PT_HPU_LAZY_MODE": "0"}),
    "gaudi3": ({}, {"INKLING_EMULATED_GAUDI": "3"}),
}


def check(reference, batch, tokens, limit=LIMIT):
    gap = judging.worst_gap(reference, batch.prompts, tokens)
    same, total = judging.equal_tokens(reference, batch.prompts, tokens)
    print(f"largest gap {gap:.3f}; {same} of {total} tokens are the reference's own choice")
    assert gap <= limit


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize(("engine", "environ"), CASES.values(), ids=CASES)
def test_tokens_are_the_reference_s(name, engine, environ, model, reference, execute):
    batch = Batch(of_lengths(EDGES, VOCABULARY))
    outcome = execute(Run(model(name), [batch], engine, environ))
    check(reference(name), batch, outcome.tokens[0])


def test_prefix_hits(model, reference, execute):
    batches = [Batch(sharing(300, tails, VOCABULARY)) for tails in ((5, 130), (5, 60, 200))]
    engine = {"enable_prefix_caching": True, "max_num_batched_tokens": 128}
    outcome = execute(Run(model("llama"), batches, engine))
    assert min(outcome.cached[1]) >= 256
    for batch, tokens in zip(batches, outcome.tokens, strict=True):
        check(reference("llama"), batch, tokens)


def test_warm_up_leaves_no_new_graph(model, reference, execute):
    batch = Batch(of_lengths((6, 141, 200), VOCABULARY), 16)
    # vllm-gaudi's warm-up prompts hold the ids 0, 1, 2, ... of their positions, none of which may
    # lie outside the vocabulary
    engine = {
        "enforce_eager": False,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 256,
        "max_model_len": VOCABULARY,
    }
    outcome = execute(Run(model("llama"), [batch, batch], engine, WARM_UP))
    print("graphs", outcome.graphs)
    assert outcome.graphs[0] > 1
    assert outcome.graphs[2] == outcome.graphs[0]
    check(reference("llama"), batch, outcome.tokens[0])


def test_two_ranks(model, reference, execute):
    batch = Batch(of_lengths((6, 141, 301), VOCABULARY))
    outcome = execute(Run(model("llama"), [batch], {"tensor_parallel_size": 2}))
    check(reference("llama"), batch, outcome.tokens[0])


def test_a_wrong_answer_is_seen(model, reference, execute):
    # The judge has to be able to say no: the same tokens under another prompt's logits.
    batch = Batch(of_lengths((6, 18), VOCABULARY))
    outcome = execute(Run(model("llama"), [batch]))
    swapped = list(reversed(outcome.tokens[0]))
    assert judging.worst_gap(reference("llama"), batch.prompts, swapped) >= 1.0
