"""Sizes, dtypes and random steps that the parity tests share.

Not tests. CI takes a fixed sample of the sizes; INKLING_CUDA_REF_SIZES=all takes the whole grid
(`nox -s cuda_ref_parity`), which the interpreter needs many minutes for.
"""

import os
import random

import pytest
import torch

from inkling_core.parity.compare import Difference, assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.step import Step

WHOLE = os.environ.get("INKLING_CUDA_REF_SIZES") == "all"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def sample(whole, some):
    """The whole list of cases, or some of it in CI."""
    assert set(some) <= set(whole), "the sample is part of the whole"
    return list(whole if WHOLE else some)


SIZES = sample([1, 3, 4, 5, 17, 63, 127, 129, 513, 1000], [1, 5, 129])


def sizes():
    return pytest.mark.parametrize("size", SIZES, ids=lambda n: f"T{n}")


def dtypes():
    return pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


class Draw:
    """Random tensors of one dtype on the device under test, by seed."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype, self.generator = dtype, torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None):
        values = torch.randn(*shape, generator=self.generator) * scale
        return values.to(dtype or self.dtype).to(DEVICE)


def ragged_starts(total: int, requests: int, padding: int = 0) -> tuple[int, ...]:
    """Offsets of `requests` requests of uneven lengths over `total - padding` tokens."""
    tokens = total - padding
    cuts = random.Random(total * 31 + requests).sample(range(1, tokens), min(requests, tokens) - 1)
    return (0, *sorted(cuts), tokens)


def scattered_step(lengths, contexts, block_size: int, padding: int = 0) -> tuple[Step, int]:
    """A step whose blocks lie in no order, and how many blocks there are with the null one."""
    needs = [-(-(a + b) // block_size) for a, b in zip(lengths, contexts, strict=True)]
    free = list(range(1, sum(needs) + 1))
    random.Random(sum(lengths) + sum(contexts)).shuffle(free)
    tables = [[free.pop() for _ in range(need)] for need in needs]
    total = sum(lengths) + padding
    step = Step.build(lengths, contexts, tables, block_size, padded_to=total, device=DEVICE)
    return step, sum(needs) + 1


def hold(op: str, actual, expected, what: str) -> Difference:
    """Asserts that two tensors agree within the table's limit for `op` on this back end."""
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} instead of {expected.dtype}"
    return assert_within(actual, expected, tolerance(op, actual.dtype, "cuda_ref"), what)
