"""Whole-model float32 logits against transformers 5.24.0: one shot, chunked, decode, ragged batch.

    max |ours - transformers| <= 1e-5 with a logit standard deviation of at least 0.5

Not the ops (unit tests beside them) and not bfloat16 (`test_layers_bf16.py`).
"""

from __future__ import annotations

import pytest
import torch
from geometries import GEOMETRIES, Geometry

pytest.importorskip("transformers", reason="needs transformers 5.24.0, the independent reference")

from hf_oracle import hf_logits, make_checkpoint

from inkling_core.checkpoint import load_decoder
from inkling_core.generate import TokenGenerator
from inkling_core.parity.compare import assert_within
from inkling_core.parity.ragged import run_ragged
from inkling_core.parity.tolerances import tolerance

LIMIT = tolerance("model", torch.float32)


class Case:
    """One geometry: our decoder, and transformers' logits of its sequences."""

    def __init__(self, geometry: Geometry, directory) -> None:
        model = make_checkpoint(directory, seed=geometry.seed, **geometry.text)
        self.geometry = geometry
        self.decoder = load_decoder(directory)
        vocab = self.decoder.config.unpadded_vocab_size
        draw = torch.Generator().manual_seed(geometry.seed)
        self.sequences = [
            torch.randint(3, vocab, (n,), generator=draw).tolist() for n in geometry.lengths
        ]
        self.expected = [hf_logits(model, ids) for ids in self.sequences]


@pytest.fixture(scope="module", params=GEOMETRIES, ids=lambda g: g.name)
def case(request, tmp_path_factory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp(request.param.name))


def report(record_property, found) -> None:
    record_property("max_abs", f"{found.max_abs:.2e}")
    print(f"max abs difference {found.max_abs:.2e}")


def test_limit_means_something(case):
    for logits in case.expected:
        assert logits.std() >= 0.5


def test_one_shot(case, record_property):
    for ids, expected in zip(case.sequences, case.expected, strict=True):
        actual = TokenGenerator(case.decoder, len(ids), case.geometry.block_size).feed(ids)
        report(record_property, assert_within(actual, expected, LIMIT, "one shot"))


def test_chunked_prefill(case, record_property):
    for size in case.geometry.chunk_sizes[1:]:
        ids, expected = case.sequences[0], case.expected[0]
        generator = TokenGenerator(case.decoder, len(ids), case.geometry.block_size)
        parts = [generator.feed(ids[s : s + size]) for s in range(0, len(ids), size)]
        report(record_property, assert_within(torch.cat(parts), expected, LIMIT, f"chunk {size}"))


def test_decode(case, record_property):
    ids, expected = case.sequences[0], case.expected[0]
    prompt = len(ids) // 2 if len(ids) < 1000 else len(ids) - 60
    generator = TokenGenerator(case.decoder, len(ids), case.geometry.block_size)
    parts = [generator.feed(ids[:prompt])] + [generator.feed([t]) for t in ids[prompt:]]
    report(record_property, assert_within(torch.cat(parts), expected, LIMIT, "decode"))


@pytest.mark.parametrize("padding", [0, 5])
def test_ragged_batch(case, padding, record_property):
    sizes = [n for n in case.geometry.chunk_sizes if n > 1 or len(case.sequences[0]) < 1000]
    actual = run_ragged(
        case.decoder,
        case.sequences,
        sizes,
        block_size=case.geometry.block_size,
        padding=padding,
        seed=padding,
    )
    for ours, expected in zip(actual, case.expected, strict=True):
        report(record_property, assert_within(ours, expected, LIMIT, "ragged"))
