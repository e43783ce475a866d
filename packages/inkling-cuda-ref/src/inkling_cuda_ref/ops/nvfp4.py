"""NVFP4: the law's own bodies, plain torch. Law: `inkling_core.ops.nvfp4`.

Not a kernel: weights are decoded while they are read, and quantised activations serve comparisons
bit by bit, not speed.
"""

import torch
from torch import Tensor

from inkling_core import ops as law
from inkling_core.ops.nvfp4 import FOUR_OVER_SIX


def dequantize_nvfp4(
    codes_XP: Tensor,
    scales_XY: Tensor,
    amax_X: Tensor,
    denominator_X: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """See `inkling_core.ops.dequantize_nvfp4`: same arguments, same result."""
    return law.dequantize_nvfp4(codes_XP, scales_XY, amax_X, denominator_X, dtype)


def quantize_nvfp4(
    x_XC: Tensor, amax_X: Tensor, denominator: float = FOUR_OVER_SIX, four_over_six: bool = True
) -> tuple[Tensor, Tensor]:
    """See `inkling_core.ops.quantize_nvfp4`: same arguments, same result."""
    return law.quantize_nvfp4(x_XC, amax_X, denominator, four_over_six)
