"""Dtypes, sizes and seeded inputs that the tests of the ops share. Not tests."""

import pytest
import torch

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
TOKENS = pytest.mark.parametrize("tokens", [1, 3, 5, 63, 127, 129, 1000], ids=lambda t: f"T{t}")


def random(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
