"""Inkling on vllm-gaudi's real runner against the dense decoder of inkling_core, by logit gap.

Two models: the trained nano, whose window is one block, and a random one of Inkling-Small's shape,
whose routing no rounding can flip. The reference is float32 on the same bfloat16 weights.
"""

import judging
import pytest
from prompts import EDGES, LONG, of_lengths, random_ids, sharing
from runs import WARM_UP, Batch, Run

LIMIT = 0.1
VOCABULARY = 280  # ids that both models have
MODELS = ["nano", "small"]
CHUNKED = {"max_num_batched_tokens": 128}
CACHED = {"enable_prefix_caching": True}
MIXED = Batch(of_lengths(EDGES + LONG, VOCABULARY), 12)  # eight at a time


def check(reference, batches, outcome, limit=LIMIT):
    for batch, tokens in zip(batches, outcome.tokens, strict=True):
        gap = judging.worst_gap(reference, batch.prompts, tokens)
        same, total = judging.equal_tokens(reference, batch.prompts, tokens)
        print(f"largest gap {gap:.3f}; {same} of {total} tokens are the reference's own choice")
        assert gap <= limit


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_chunks_and_prefix_hits(name, asynchronous, model, reference, execute):
    first = Batch(sharing(300, (5, 84, 130, 212), VOCABULARY), 12)
    again = Batch(sharing(300, (5, 60, 84, 200), VOCABULARY, seed=0), 12)
    engine = {**CHUNKED, **CACHED, "async_scheduling": asynchronous}
    outcome = execute(Run(model(name), [MIXED, first, again], engine, poison=True))
    assert min(outcome.cached[2]) >= 256, outcome.cached
    assert outcome.poisoned > 20
    check(reference(name), [MIXED, first, again], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_whole_prompts_and_second_turns(name, model, reference, execute):
    turn = Batch(of_lengths((100, 250, 301), VOCABULARY, seed=3), 40)
    engine = {**CACHED, "max_num_batched_tokens": 1024}
    opened = execute(Run(model(name), [turn], engine))
    # The second turn hits blocks that decode steps filled.
    history = [[*p, *a] for p, a in zip(turn.prompts, opened.tokens[0], strict=True)]
    second = Batch([[*ids, *random_ids(3, VOCABULARY, at)] for at, ids in enumerate(history)], 12)
    outcome = execute(Run(model(name), [turn, second], engine, poison=True))
    assert outcome.tokens[0] == opened.tokens[0]
    assert outcome.cached[1][0] >= 128 and outcome.cached[1][1] >= 256
    check(reference(name), [turn, second], outcome)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_preemption_with_prefix_caching(name, asynchronous, model, reference, execute):
    batch = Batch(of_lengths((61, 97, 180, 250, 300, 384), VOCABULARY, seed=5), 150)
    engine = {
        **CHUNKED,
        **CACHED,
        "async_scheduling": asynchronous,
        "num_gpu_blocks_override": 11,
        "max_num_seqs": 6,
    }
    outcome = execute(Run(model(name), [batch], engine, poison=True))
    print(f"{outcome.preemptions[0]} preemptions, {outcome.poisoned} blocks poisoned")
    assert outcome.preemptions[0] >= 2
    check(reference(name), [batch], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_warm_up_leaves_no_new_graph(name, model, reference, execute):
    batch = Batch(of_lengths((6, 141, 200, 301), VOCABULARY), 12)
    engine = {"enforce_eager": False, "max_num_seqs": 4, "max_num_batched_tokens": 256}
    outcome = execute(Run(model(name), [batch, batch], engine, WARM_UP))
    print("graphs after start-up and after each batch:", outcome.graphs)
    assert outcome.graphs[0] > 1
    assert outcome.graphs[1:] == outcome.graphs[:1] * 2
    check(reference(name), [batch, batch], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_two_ranks(name, model, reference, execute):
    engine = {**CHUNKED, **CACHED, "tensor_parallel_size": 2}
    repeated = Batch(MIXED.prompts[-4:], 12)
    outcome = execute(Run(model(name), [MIXED, repeated], engine))
    assert min(outcome.cached[1]) > 0
    check(reference(name), [MIXED, repeated], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_float32_tokens_are_equal(name, model, reference, execute):
    engine = {**CHUNKED, **CACHED, "dtype": "float32"}
    outcome = execute(Run(model(name), [MIXED], engine, {"INKLING_EMULATED_FLOAT32": "1"}))
    same, total = judging.equal_tokens(reference(name), MIXED.prompts, outcome.tokens[0])
    assert same == total


@pytest.mark.parametrize("name", ["small"])
def test_rounding_flips_no_routing(name, model):
    ids = MIXED.prompts[-1][:256]
    flips, decisions = judging.routing_flips(model(name), ids)
    print(f"{flips} of {decisions} routing decisions differ between bfloat16 and float32")
    assert decisions == 256 * 10
    assert flips == 0


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_spread(name, reference):
    # A limit of 0.1 means something only where logits differ by much more.
    assert float(reference(name)(MIXED.prompts[-2]).std()) >= 1.0
