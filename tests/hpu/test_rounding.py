"""What bfloat16 does by itself, so that a gap on the runner can be told from a fault.

The limit of test_inkling.py, 0.1, holds where rounding alone keeps to it: on models whose routing
no rounding flips, few layers deep. Where it does not (twelve layers; nano on random ids, whose
routing does flip) the runner is held to the dense decoder in bfloat16 on the same text, and to
every token of the float32 reference once the rounding is gone.

    error    log-probability of a generated token minus the float32 reference's
    claim    root mean square error of the runner <= SLACK * that of dense bfloat16
"""

import judging
import pytest
import torch
from runs import Run
from test_inkling import CACHED, CHUNKED, MIXED, mixed, random_turns

SLACK = 1.25  # two roundings of the same size, seen through a few hundred tokens
FLOAT32 = {"INKLING_EMULATED_FLOAT32": "1"}
UNSTEADY = {
    # nano, second turns on random ids: its routing flips
    "nano": {**CACHED, "max_num_batched_tokens": 1024},
    # twelve layers, prompts of many lengths in chunks
    "deep": {**CHUNKED, **CACHED},
}


def batches_of(name, execute, run):
    """The batches, the second continuing the first one's answers."""
    if name == "deep":
        return [MIXED, MIXED]
    first, then = random_turns()
    return [first, then(execute(run([first])).tokens[0])]


def rms(errors):
    return float(errors.square().mean().sqrt())


@pytest.mark.parametrize("name", UNSTEADY)
def test_the_runner_rounds_no_worse_than_the_dense_decoder(
    name, model, reference, dense_bfloat16, execute
):
    def run(batches):
        return Run(model(name), batches, UNSTEADY[name], log_probs=True)

    batches = batches_of(name, execute, run)
    outcome = execute(run(batches))
    assert max(outcome.cached[1]) >= 128
    errors, dense_errors = [], []
    for batch, tokens, found in zip(batches, outcome.tokens, outcome.log_probs, strict=True):
        exact = judging.log_probs(reference(name), batch.prompts, tokens)
        dense = judging.log_probs(dense_bfloat16(name), batch.prompts, tokens)
        runner = exact.new_tensor([value for answer in found for value in answer])
        gap = judging.worst_gap(reference(name), batch.prompts, tokens)
        own = judging.own_gap(reference(name), dense_bfloat16(name), batch.prompts, tokens)
        print(f"largest gap {gap:.3f}, of dense bfloat16 {own:.3f}; ", end="")
        print(f"error {rms(runner - exact):.4f}, of dense bfloat16 {rms(dense - exact):.4f}")
        texts = [[*p, *a] for p, a in zip(batch.prompts, tokens, strict=True)]
        counts = [judging.routing_flips(model(name), text) for text in texts]
        flips, decisions = (sum(column) for column in zip(*counts, strict=True))
        print(f"{flips} of {decisions} routing decisions turned by bfloat16")
        errors.append(runner - exact)
        dense_errors.append(dense - exact)
    assert rms(torch.cat(errors)) <= SLACK * rms(torch.cat(dense_errors))


@pytest.mark.parametrize("name", UNSTEADY)
def test_without_rounding_every_token_is_equal(name, model, reference, execute):
    def run(batches):
        return Run(model(name), batches, {**UNSTEADY[name], "dtype": "float32"}, FLOAT32)

    batches = batches_of(name, execute, run)
    outcome = execute(run(batches))
    assert max(outcome.cached[1]) >= 128
    for batch, tokens in zip(batches, outcome.tokens, strict=True):
        same, total = judging.equal_tokens(reference(name), batch.prompts, tokens)
        assert same == total


@pytest.mark.parametrize(("name", "layers"), [("small", 4), ("deep", 10)])
def test_rounding_flips_no_routing(name, layers, model):
    """Of the random models; nano's own margins are what they are."""
    ids = MIXED.prompts[-1][:256]
    flips, decisions = judging.routing_flips(model(name), ids)
    print(f"{flips} of {decisions} routing decisions differ between bfloat16 and float32")
    assert decisions == 256 * layers
    assert flips == 0


def test_logits_are_spread(reference):
    # A limit of 0.1 means something only where logits differ by much more.
    assert float(reference("small")(MIXED.prompts[-2]).std()) >= 1.0
    assert float(reference("nano")(mixed("nano").prompts[-2]).std()) >= 1.0
