"""MXFP8: blocks of 32 e4m3 values that share one power of two.

    x = value(code) * 2^(scale - 127)          scale: a byte, E8M0; 255 is NaN

Not a file layout (`inkling_core.weights.expert_formats`) and not a product: whoever multiplies
does so with what `dequantize_mxfp8` returns. Products of an e4m3 value and a power of two are exact
in float32, so there is no order of operations to agree on.

Quantising picks the scale from the block's largest magnitude a = m * 2^k, 1 <= m < 2:

    ceil    2^(k-8), and one more where m > 1.75: the least power with a / 2^e <= 448; nothing
            saturates. What CUDA libraries do.
    floor   2^(k-8), as the OCP specification says; elements beyond 448 * 2^(k-8) saturate.

The two differ exactly where m > 1.75. Which one the released models' activations use is not
published. X stands for any leading dimensions, C for columns, Y = C / 32 for blocks.
"""

from typing import Literal

import torch
from torch import Tensor

BLOCK = 32
E4M3_MAX = 448.0


def dequantize_mxfp8(codes_XC: Tensor, scales_XY: Tensor, dtype: torch.dtype) -> Tensor:
    """Values of MXFP8 blocks.

    Args:
        codes_XC: float8_e4m3fn.
        scales_XY: uint8 (or float8_e8m0fnu), one a block of 32 columns.
        dtype: of the result; rounded to it once.

    Returns:
        `[X, C]`; NaN where a code or a scale is NaN.
    """
    powers_XY = scales_XY.view(torch.float8_e8m0fnu).float()
    blocks_XYB = codes_XC.float().unflatten(-1, (-1, BLOCK))
    return (blocks_XYB * powers_XY[..., None]).flatten(-2).to(dtype)


def quantize_mxfp8(x_XC: Tensor, rule: Literal["ceil", "floor"] = "ceil") -> tuple[Tensor, Tensor]:
    """Nearest MXFP8 of each block, ties to even.

    Args:
        x_XC: finite, any float dtype; C a multiple of 32.
        rule: how a block's scale is rounded, see above.

    Returns:
        codes `[X, C]` float8_e4m3fn and scales `[X, Y]` uint8.

    Raises:
        ValueError: columns that do not fill blocks, a value that is not finite, another rule.
    """
    if rule not in ("ceil", "floor"):
        raise ValueError(f"rule = {rule!r}: must be 'ceil' or 'floor'")
    blocks_XYB = finite_blocks(x_XC, BLOCK)
    tiny = torch.finfo(torch.float32).tiny  # a block of zeros takes the least scale
    half_mantissa_XY, exponent_XY = torch.frexp(blocks_XYB.abs().amax(-1).clamp(min=tiny))
    power_XY = exponent_XY - 9  # frexp's mantissa is m / 2, so its exponent is k + 1
    if rule == "ceil":
        power_XY = power_XY + (half_mantissa_XY > 0.875)
    scales_XY = (power_XY + 127).clamp(0, 254).to(torch.uint8)
    scaled_XYB = blocks_XYB / scales_XY.view(torch.float8_e8m0fnu).float()[..., None]
    codes_XYB = scaled_XYB.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes_XYB.flatten(-2), scales_XY


def finite_blocks(x_XC: Tensor, block: int) -> Tensor:
    """`[X, C]` -> `[X, C / block, block]` in float32.

    Raises:
        ValueError: columns that do not fill blocks, or a value that is not finite.
    """
    if x_XC.shape[-1] % block:
        raise ValueError(f"{x_XC.shape[-1]} columns do not fill blocks of {block}")
    if not x_XC.isfinite().all():
        raise ValueError("a value to quantise is NaN or infinite: no block scale can hold it")
    return x_XC.float().unflatten(-1, (-1, block))
