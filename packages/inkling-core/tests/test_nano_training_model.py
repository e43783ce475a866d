"""The fast training forward: bias bands, attention, gradients, and the decoder as its law."""

from __future__ import annotations

import math

import pytest
import torch

from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.nano import training_model as fast
from inkling_core.nano.geometry import NANO, initial_weights
from inkling_core.nano.rows import Mix, batch
from inkling_core.weights.loader import load


def random_weights(seed: int) -> dict[str, torch.Tensor]:
    """Initial weights with every side weight moved off its neutral start."""
    generator = torch.Generator().manual_seed(seed)
    weights = initial_weights(seed)
    return {n: w + 0.1 * torch.randn(w.shape, generator=generator) for n, w in weights.items()}


def rows_of(length: int, count: int = 2) -> torch.Tensor:
    return torch.tensor(batch("fast", length, count, Mix(0.3, 0.2, 0.2, 0.5))[0])


@pytest.mark.parametrize(("block", "extent"), [(1, 1), (3, 5), (5, 3), (127, 129)])
@pytest.mark.parametrize("beyond", [0.0, -math.inf])
def test_band_puts_each_distance_in_its_column(block: int, extent: int, beyond: float) -> None:
    rel = torch.randn(2, block, extent)
    around = fast.surroundings(block, extent, beyond, torch.float32)
    bias = fast.Band.apply(rel.flip(-1), around)
    for row in range(block):
        for column in range(block + extent):
            distance = extent + row - column
            if distance < 0:
                expected = torch.full((2,), -math.inf)
            elif distance >= extent:
                expected = torch.full((2,), beyond)
            else:
                expected = rel[:, row, distance]
            assert torch.equal(bias[:, row, column], expected), (row, column)


def test_band_gradient_is_that_of_the_entries() -> None:
    rel = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    around = fast.surroundings(4, 3, 0.0, torch.float64).masked_fill(torch.tensor(False), 0)
    finite = torch.nan_to_num(around, neginf=-5.0)
    assert torch.autograd.gradcheck(lambda r: fast.Band.apply(r, finite), (rel,))


@pytest.mark.parametrize("length", [128, 256, 512, 1024])
def test_forward_equals_the_decoder_on_random_weights(length: int) -> None:
    weights = random_weights(length)
    decoder = Decoder(NANO).load_weights(weights.items())
    ids = rows_of(length)
    hidden, _ = fast.forward(weights, ids)
    logits = fast.logits(weights, hidden)
    for row, expected in zip(ids, logits, strict=True):
        actual = TokenGenerator(decoder, length).feed(row)
        assert actual.shape == expected.shape == (length, NANO.unpadded_vocab_size)
        assert expected.std() > 0.1
        assert float((actual - expected).abs().max()) < 1e-4


@pytest.mark.parametrize("length", [256, 2048])
def test_forward_equals_the_decoder_on_the_shipped_checkpoint(length: int) -> None:
    weights = load(EMBEDDED, NANO, progress="off")
    decoder = Decoder(NANO).load_weights(weights.items())
    row = rows_of(length, 1)
    expected = fast.logits(weights, fast.forward(weights, row)[0])[0]
    actual = TokenGenerator(decoder, length).feed(row[0])
    assert expected.std() > 0.5
    assert float((actual - expected).abs().max()) < 1e-4


def test_loads_count_each_token_twice() -> None:
    _, loads = fast.forward(random_weights(0), rows_of(128))
    assert len(loads) == NANO.num_hidden_layers - NANO.dense_layer_count
    assert all(float(load.sum()) == 2 * 128 * NANO.num_experts_per_tok for load in loads)


def test_every_weight_but_the_selection_bias_gets_a_gradient() -> None:
    weights = {n: w.requires_grad_() for n, w in random_weights(1).items()}
    hidden, _ = fast.forward(weights, rows_of(256))
    fast.logits(weights, hidden).square().mean().backward()
    without = {name for name, weight in weights.items() if weight.grad is None}
    assert without == {name for name in weights if name.endswith("gate.bias")}
    still = {n for n, w in weights.items() if w.grad is not None and not w.grad.abs().sum()}
    assert not still
