"""Inkling on vllm-gaudi's real runner against the dense decoder of inkling_core, by logit gap.

Two models: a random one of Inkling-Small's shape, whose routing no rounding can flip, on random
ids; and the trained nano, whose window is one block, on its own tasks. The reference is float32
on the same bfloat16 weights. In float32 both run on random ids and every token has to be equal.
test_rounding.py says why this choice, and what is asked where bfloat16 alone exceeds the limit.
"""

import judging
import nano_cases
import pytest
from prompts import EDGES, LONG, of_lengths, random_ids, sharing
from runs import WARM_UP, Batch, Run

LIMIT = 0.1
VOCABULARY = 280  # ids that both models have
MODELS = ["nano", "small"]
CHUNK = 128
CHUNKED = {"max_num_batched_tokens": CHUNK}
CACHED = {"enable_prefix_caching": True}
MIXED = Batch(of_lengths(EDGES + LONG, VOCABULARY), 12)  # eight at a time
# Alone, so that the chunk edge lies one, two and three tokens before the end of the prompt.
AT_EDGES = [Batch([random_ids(CHUNK + n, VOCABULARY, seed=n)], 12) for n in (1, 2, 3)]
SMALL_POOL = {**CHUNKED, **CACHED, "num_gpu_blocks_override": 11, "max_num_seqs": 6}
# With a share long prompts wait their turn, and the pool hardly fills.
UNPACED = {"INKLING_LONG_PREFILL_SHARE": "null"}
GROWING = Batch(of_lengths((61, 97, 180, 250, 300, 384), VOCABULARY, seed=5), 150)
# Beyond 16 blocks of context a bucket has far keys, an edge with padding, and near ones.
FAR = {"max_model_len": 4096, "max_num_batched_tokens": 512}
BOTH_WAYS = pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])


def check(reference, batches, outcome, limit=LIMIT):
    for batch, tokens in zip(batches, outcome.tokens, strict=True):
        gap = judging.worst_gap(reference, batch.prompts, tokens)
        same, total = judging.equal_tokens(reference, batch.prompts, tokens)
        print(f"largest gap {gap:.3f}; {same} of {total} tokens are the reference's own choice")
        assert gap <= limit


def mixed(name):
    """Prompts of many lengths that the model can be judged on in bfloat16."""
    return MIXED if name == "small" else nano_cases.batch(nano_cases.exams())


def random_turns():
    """A batch of random ids, and a function from its answers to a batch that continues them."""
    first = Batch(of_lengths((100, 250, 301), VOCABULARY, seed=3), 40)

    def then(answers):
        talks = [[*p, *a] for p, a in zip(first.prompts, answers, strict=True)]
        more = [[*ids, *random_ids(3, VOCABULARY, at)] for at, ids in enumerate(talks)]
        return Batch(more, 12)

    return first, then


def turns(name):
    """As random_turns, of text that the model can be judged on in bfloat16."""
    if name == "small":
        return random_turns()
    asked = nano_cases.exams([("two_turn", size) for size in (300, 400, 500)], seed=3)
    return nano_cases.batch(nano_cases.first_turns(asked)), lambda _: nano_cases.batch(asked)


@pytest.mark.parametrize("name", MODELS)
@BOTH_WAYS
def test_chunks_and_prefix_hits(name, asynchronous, model, reference, execute):
    batches = [mixed(name)] * 2  # the second time whole blocks come from the cache
    if name == "small":
        batches += [Batch(sharing(300, t, VOCABULARY), 12) for t in ((5, 84, 130, 212), (60, 200))]
        batches += AT_EDGES
    engine = {**CHUNKED, **CACHED, "async_scheduling": asynchronous}
    outcome = execute(Run(model(name), batches, engine, poison=True))
    hits = outcome.cached[1]
    print("prompt tokens from the cache", hits, "blocks poisoned", outcome.poisoned)
    assert max(hits) >= 512 and sum(count > 0 for count in hits) >= 6
    assert outcome.poisoned > 20
    check(reference(name), batches, outcome)


@pytest.mark.parametrize("name", MODELS)
def test_second_turns_hit_what_decode_wrote(name, model, reference, execute):
    first, then = turns(name)
    engine = {**CACHED, "max_num_batched_tokens": 1024}  # whole prompts
    opened = execute(Run(model(name), [first], engine))
    second = then(opened.tokens[0])
    outcome = execute(Run(model(name), [first, second], engine, poison=True))
    assert outcome.tokens[0] == opened.tokens[0]
    assert min(outcome.cached[1]) >= 128
    check(reference(name), [first, second], outcome)


def needles():
    """Of 3,000 tokens; where the needle stands differs."""
    return nano_cases.exams([("needle", 3000)] * 3, seed=7)


@pytest.mark.parametrize("split", ["1", "0"], ids=["near-and-far", "whole-context"])
def test_far_keys(split, model, reference, execute):
    """Merged with the near ones by the row sums of the emulated kernel, 128 times too large."""
    asked = needles()
    environ = {"INKLING_NEAR_FAR": split}
    outcome = execute(Run(model("nano"), [nano_cases.batch(asked)], FAR, environ))
    assert ("prefill merges near and far keys" in outcome.log) == (split == "1")
    assert "factor=128.0" in outcome.log or split == "0"
    check(reference("nano"), [nano_cases.batch(asked)], outcome)
    assert nano_cases.right(asked, outcome.tokens[0]) == len(asked)


@BOTH_WAYS
def test_preemption(asynchronous, model, reference, execute):
    engine = {**SMALL_POOL, "async_scheduling": asynchronous}
    outcome = execute(Run(model("small"), [GROWING], engine, UNPACED, poison=True))
    print(f"{outcome.preemptions[0]} preemptions, {outcome.poisoned} blocks poisoned")
    assert outcome.preemptions[0] >= 2
    check(reference("small"), [GROWING], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_warm_up_leaves_no_new_graph(name, model, reference, execute):
    batch = Batch(mixed(name).prompts[:6], mixed(name).lengths()[:6])
    engine = {"enforce_eager": False, "max_num_seqs": 4, "max_num_batched_tokens": 256}
    outcome = execute(Run(model(name), [batch, batch], engine, WARM_UP))
    print("graphs after start-up and after each batch:", outcome.graphs)
    assert outcome.graphs[0] > 1
    assert outcome.graphs[1:] == outcome.graphs[:1] * 2
    check(reference(name), [batch, batch], outcome)


@pytest.mark.parametrize("name", MODELS)
def test_two_ranks(name, model, reference, execute):
    engine = {**CHUNKED, **CACHED, "tensor_parallel_size": 2}
    again = Batch(mixed(name).prompts[-4:], mixed(name).lengths()[-4:])
    outcome = execute(Run(model(name), [mixed(name), again], engine))
    assert min(outcome.cached[1]) > 0
    check(reference(name), [mixed(name), again], outcome)


@pytest.mark.parametrize("name", MODELS)
@BOTH_WAYS
def test_float32_tokens_are_equal(name, asynchronous, model, reference, execute):
    batches = [MIXED, GROWING]
    engine = {**SMALL_POOL, "dtype": "float32", "async_scheduling": asynchronous}
    lifted = {"INKLING_EMULATED_FLOAT32": "1", **UNPACED}
    outcome = execute(Run(model(name), batches, engine, lifted, poison=True))
    print(f"{outcome.preemptions} preemptions, {outcome.poisoned} blocks poisoned")
    assert outcome.preemptions[1] >= 2
    for batch, tokens in zip(batches, outcome.tokens, strict=True):
        same, total = judging.equal_tokens(reference(name), batch.prompts, tokens)
        assert same == total


def test_nano_answers_its_tasks(model, execute):
    asked = nano_cases.exams()
    outcome = execute(Run(model("nano"), [nano_cases.batch(asked)], CHUNKED))
    assert nano_cases.right(asked, outcome.tokens[0]) == len(asked)
