"""NVFP4: the law's own bodies, plain torch. Law: `inkling_core.ops.nvfp4`.

Not the range of e4m3 on Gaudi 2, which ends at 240: `inkling_hpu.e4m3_range`. Gaudi has no unit for
block formats; experts are decoded to bf16 before they reach a kernel.
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
