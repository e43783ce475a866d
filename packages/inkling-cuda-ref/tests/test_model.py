"""The core's decoder with these ops bound: logits of transformers, nano's greedy tokens, the
conv-snapshot conformance suite over the store that it uses."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import DEVICE, WHOLE, hold, sample
from triton.runtime.interpreter import GridExecutor

from inkling_core.backend import OP_NAMES
from inkling_core.checkpoint import load_decoder
from inkling_core.conv_state import TensorConvStore
from inkling_core.conv_state.conformance import ConvStoreConformance
from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.generate_text import Text
from inkling_core.nano import tasks
from inkling_core.nano.eval import exam, hidden_states
from inkling_core.parity.compare import difference
from inkling_core.parity.ragged import run_ragged
from inkling_core.parity.tolerances import tolerance
from inkling_cuda_ref import ops
from inkling_cuda_ref.backend import CUDA_REF
from inkling_cuda_ref.joined import JOINED
from inkling_cuda_ref.storage import INTERPRETED

GOLDEN = Path(__file__).parents[2] / "inkling-core" / "tests" / "data" / "golden"


@pytest.fixture(scope="module")
def golden():
    """The decoder and, by transformers 5.24.0, ids and logits of three sequences."""
    return load_decoder(GOLDEN, CUDA_REF, device=DEVICE), load_file(GOLDEN / "expected.safetensors")


def test_every_op_is_bound(golden):
    decoder, _ = golden
    assert all(getattr(decoder.ops, name) is getattr(ops, name) for name in OP_NAMES)
    assert all(getattr(decoder.ops, name) is step for name, step in JOINED.items())


@pytest.mark.skipif(not INTERPRETED, reason="counts launches in the interpreter")
def test_joined_steps_are_one_launch_each(golden, monkeypatch):
    """A layer of a running generator: one launch before attention, one after each of two blocks;
    the separate convolution and the separate cache write are gone."""
    decoder, expected = golden
    generator = TokenGenerator(decoder, 20, block_size=16)
    generator.feed(expected["ids.0"][:17])
    launched = Counter()
    run = GridExecutor.__call__

    def counted(self, *args, **kwargs):
        launched[self.fn.__name__] += 1
        return run(self, *args, **kwargs)

    def no_write(*_):
        raise AssertionError("keys and values were written a second time")

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    monkeypatch.setattr(generator.caches.kv, "write", no_write)
    generator.feed(expected["ids.0"][17:18])
    layers = decoder.config.num_hidden_layers
    assert launched["_prep_kernel"] == launched["_attend_kernel"] == layers
    assert launched["_conv_add_norm_kernel"] == 2 * layers
    assert launched["_norm_kernel"] == 2, "of the embedding, and the first layer's"
    assert not launched["_conv_kernel"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_shot(golden, number):
    decoder, expected = golden
    ids = expected[f"ids.{number}"]
    actual = TokenGenerator(decoder, len(ids), block_size=16).feed(ids)
    hold("model", actual.cpu(), expected[f"logits.{number}"], "one shot")
    assert torch.equal(actual.argmax(-1).cpu(), expected[f"logits.{number}"].argmax(-1))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_greedy_tokens_of_transformers(golden, number):
    """Prompt in chunks, then its own tokens one by one: those of transformers, and of the core."""
    decoder, expected = golden
    prompt, greedy = (expected[f"{name}.{number}"].tolist() for name in ("ids", "greedy"))
    assert len(set(greedy)) > 3, "a constant answer would say little"
    for one in (decoder, load_decoder(GOLDEN)):
        generator = TokenGenerator(one, len(prompt) + len(greedy), block_size=16)
        assert list(generator.generate(prompt, len(greedy), chunk=17)) == greedy


def test_chunks_and_decode(golden):
    """Chunks that begin and end around block edges, then single tokens."""
    decoder, expected = golden
    ids = expected["ids.0"]
    generator = TokenGenerator(decoder, len(ids), block_size=16)
    parts = [generator.feed(part) for part in ids.split([15, 2, 31, 16, 1, 1, 1, 13])]
    hold("model", torch.cat(parts).cpu(), expected["logits.0"], "chunks")


def test_ragged_batch(golden):
    decoder, expected = golden
    sequences = [expected[f"ids.{i}"].tolist() for i in range(3)]
    found = run_ragged(decoder, sequences, [5, 16, 17], block_size=8, padding=3, seed=1)
    for number, logits in enumerate(found):
        hold("model", logits.cpu(), expected[f"logits.{number}"], f"sequence {number}")


@pytest.fixture(scope="module")
def nano():
    """The shipped model by these ops and by the reference ops, and its text."""
    return (
        load_decoder(EMBEDDED, CUDA_REF, device=DEVICE),
        load_decoder(EMBEDDED),
        Text.from_checkpoint(EMBEDDED),
    )


@pytest.mark.parametrize("task", sample(["sum", "copy", "tool"], ["sum"]))
def test_nano_greedy_tokens(nano, task):
    """Prompt in chunks, then token by token over paged keys: the reference's tokens."""
    ours, reference, text = nano
    one = exam(next(iter(tasks.cases(task, "heldout", 1, 128, 5))), text)
    count = len(one.answer) if WHOLE else 4
    given = (one.prompt, count)
    found = list(TokenGenerator(ours, 512).generate(*given, chunk=50))
    assert found == list(TokenGenerator(reference, 512).generate(*given)) == one.answer[:count]


@pytest.mark.skipif(DEVICE.type != "cpu", reason="inkling eval runs on a CPU")
@pytest.mark.parametrize("task", sample(tasks.TASKS, ["sum", "tool"]))
def test_nano_eval_is_unchanged(nano, task):
    """What `inkling eval` asks: at every place of an answer the reference's token, right or not."""
    ours, reference, text = nano
    made = tasks.cases(task, "heldout", 4 if WHOLE else 1, 256, 7)
    exams = [exam(case, text) for case in made]
    sequences = [one.prompt + one.answer[:-1] for one in exams]
    found = [hidden_states(decoder, sequences) for decoder in (ours, reference)]
    for one, *hidden in zip(exams, *found, strict=True):
        places = [hidden_TD[-len(one.answer) :] for hidden_TD in hidden]
        logits = [ours.logits(places[0]).cpu(), reference.logits(places[1])]
        # trained logits are far larger than the 0.5 that the table's absolute limit is made for
        assert difference(*logits).rms_ratio <= tolerance("model", torch.float32).max_abs
        assert torch.equal(logits[0].argmax(-1), logits[1].argmax(-1))


class TestConformance(ConvStoreConformance[TensorConvStore]):
    """The store that the generator uses, on the device under test."""

    device = DEVICE.type
    fuzz_examples = 60 if WHOLE else 10

    def make_store(self, layout, num_layers, num_blocks):
        return TensorConvStore.allocate(layout, num_layers, num_blocks, device=self.device)

    def rows(self, store, layer):
        return store.rows[layer]
