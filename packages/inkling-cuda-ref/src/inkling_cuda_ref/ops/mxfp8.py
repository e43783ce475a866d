"""MXFP8: the law's own bodies, plain torch. Law: `inkling_core.ops.mxfp8`.

Not a kernel: weights are decoded while they are read, and quantised activations serve comparisons
bit by bit, not speed.
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
