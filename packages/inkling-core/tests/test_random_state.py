"""The root conftest.py: each test starts from the same random state, so that failures repeat."""

import random

import numpy
import pytest
import torch


@pytest.mark.parametrize("time", [1, 2])
def test_draws_without_a_generator_repeat(time):
    expected = torch.rand(3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.rand(3), expected)
    assert random.random() == random.Random(0).random()
    assert numpy.random.random() == numpy.random.RandomState(0).random_sample()
