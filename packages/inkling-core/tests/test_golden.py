"""The decoder against logits that transformers 5.24.0 computed for the same checkpoint.

    max |ours - transformers| <= the table's limit for ("model", float32), logits std >= 0.5

The committed checkpoint crosses the window, the relative extent and the log-scaling floor, and has
dense, expert, local and global layers, a padded vocabulary and random side weights.
`tests/parity/make_golden.py` writes it; mutations of the math run these tests.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from inkling_core.checkpoint import load_decoder
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.parity.compare import assert_within
from inkling_core.parity.ragged import run_ragged
from inkling_core.parity.tolerances import tolerance

GOLDEN = Path(__file__).parent / "data" / "golden"
LIMIT = tolerance("model", torch.float32)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder(GOLDEN)


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "expected.safetensors")


def test_logits_are_large_enough_for_the_limit_to_mean_something(expected):
    assert all(expected[f"logits.{i}"].std() >= 0.5 for i in range(3))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_shot(decoder, expected, number):
    ids = expected[f"ids.{number}"]
    actual = TokenGenerator(decoder, len(ids), block_size=16).feed(ids)
    assert_within(actual, expected[f"logits.{number}"], LIMIT, "one shot")


@pytest.mark.parametrize(
    "chunks",
    [[40] + [1] * 40, [2, 17, 1, 31, 29], [8] * 10, [15, 1, 16, 33, 15], [1] * 80],
    ids=lambda c: "-".join(map(str, c[:4])),
)
def test_chunked_and_decode(decoder, expected, chunks):
    ids = expected["ids.0"]
    generator = TokenGenerator(decoder, len(ids), block_size=16)
    actual = torch.cat([generator.feed(part) for part in ids.split(chunks)])
    assert_within(actual, expected["logits.0"], LIMIT, f"chunks {chunks[:5]}")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("padding", [0, 3])
def test_ragged_batch(decoder, expected, seed, padding):
    sequences = [expected[f"ids.{i}"].tolist() for i in range(3)]
    sizes = [1, 2, 3, 5, 16, 17]
    actual = run_ragged(decoder, sequences, sizes, block_size=8, padding=padding, seed=seed)
    for number, logits in enumerate(actual):
        assert_within(logits, expected[f"logits.{number}"], LIMIT, f"ragged sequence {number}")


def test_padded_vocabulary_is_cut(decoder, expected):
    logits = TokenGenerator(decoder, 5).feed(expected["ids.2"])
    assert logits.shape[-1] == decoder.config.unpadded_vocab_size < decoder.config.vocab_size
