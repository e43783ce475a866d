"""Measures of the difference of two tensors, and the one assertion built on them.

Not a table of limits (`tolerances`). All measures are float64; a NaN or infinity on either side is
a difference of infinity.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core.parity.tolerances import Tolerance


@dataclass(frozen=True)
class Difference:
    """Largest absolute difference, where it is, and rms(a - b) / rms(b)."""

    max_abs: float
    rms_ratio: float
    worst: tuple[int, ...]

    def within(self, limit: Tolerance) -> bool:
        """Whether every limit that is set holds."""
        pairs = ((self.max_abs, limit.max_abs), (self.rms_ratio, limit.rms_ratio))
        return all(bound is None or value <= bound for value, bound in pairs)


def difference(actual: Tensor, expected: Tensor) -> Difference:
    """Compares two tensors of one shape.

    Raises:
        ValueError: the shapes differ, or there is nothing to compare.
    """
    if actual.shape != expected.shape or not actual.numel():
        raise ValueError(f"cannot compare {list(actual.shape)} with {list(expected.shape)}")
    a, b = actual.double(), expected.double()
    gap = (a - b).abs()
    if not bool(gap.isfinite().all()):
        gap = torch.where(gap.isfinite(), gap, torch.inf)
    flat = int(gap.argmax())
    worst = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), gap.shape))
    rms = float(gap.square().mean().sqrt() / b.square().mean().sqrt().clamp(min=1e-30))
    return Difference(float(gap.max()), rms, worst)


def assert_within(actual: Tensor, expected: Tensor, limit: Tolerance, what: str) -> Difference:
    """Raises AssertionError with all figures where a limit is crossed; returns the figures."""
    found = difference(actual, expected)
    if not found.within(limit):
        raise AssertionError(
            f"{what}: max abs difference {found.max_abs:.3e} at {found.worst}, "
            f"rms ratio {found.rms_ratio:.3e}; limits {limit.max_abs} and {limit.rms_ratio}"
        )
    return found
