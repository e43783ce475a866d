"""MXFP8: the law's own bodies, plain torch. Law: `inkling_core.ops.mxfp8`.

Not the range of e4m3 on Gaudi 2, which ends at 240: `inkling_hpu.e4m3_range`. Gaudi has no unit for
block formats; experts are decoded to bf16 before they reach a kernel.
"""

from typing import Literal

import torch
from torch import Tensor

from inkling_core import ops as law


def dequantize_mxfp8(codes_XC: Tensor, scales_XY: Tensor, dtype: torch.dtype) -> Tensor:
    """See `inkling_core.ops.dequantize_mxfp8`: same arguments, same result."""
    return law.dequantize_mxfp8(codes_XC, scales_XY, dtype)


def quantize_mxfp8(x_XC: Tensor, rule: Literal["ceil", "floor"] = "ceil") -> tuple[Tensor, Tensor]:
    """See `inkling_core.ops.quantize_mxfp8`: same arguments, same result."""
    return law.quantize_mxfp8(x_XC, rule)
