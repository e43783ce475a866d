"""NVFP4: blocks of 16 e2m1 values with an e4m3 scale, under one float32 scale per expert or token.

    x = (value(code) * scale) * (amax / denominator)      in float32, in this order

The order decides the last bit of a bf16 weight. A byte holds two codes, the even column in the low
nibble; a code is a sign and an index of 0 .5 1 1.5 2 3 4 6. `amax` A is the largest magnitude
under the outer scale, the denominator D is 6 times the block scale that a block with that
magnitude gets: 6 * 256 = 1536 for Four-Over-Six, 6 * 448 = 2688 without.

Four-Over-Six (arXiv 2512.02010) quantises each block twice, its largest magnitude b at 6 and at 4:

    s6 = e4m3(b / 6 * (D / A))          s4 = e4m3((b / 6 * (D / A)) * 1.5)
    code_i = e2m1(x * (1 / (s_i * (1 / (D / A)))))       zeros where s_i = 0
    error_i = sum |value(code_i) * s_i * A / D - x|

and keeps 4 only where its error is strictly smaller. The 1.5 takes block scales up to D / 4 = 384,
exact in e4m3; from D = 2688 it would take them to 672, past e4m3's 448.

Not a file layout (`inkling_core.weights.expert_formats`) and not a product. X stands for any
leading dimensions, C for columns, P = C / 2 for bytes, Y = C / 16 for blocks.
"""

import torch
from torch import Tensor

from inkling_core.ops.mxfp8 import E4M3_MAX, finite_blocks

BLOCK = 16
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FOUR_OVER_SIX = 1536.0
"""The denominator that leaves room for a block scale 1.5 times as large."""


def dequantize_nvfp4(
    codes_XP: Tensor,
    scales_XY: Tensor,
    amax_X: Tensor,
    denominator_X: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Values of NVFP4 blocks.

    Args:
        codes_XP: uint8, two columns a byte, the even one in the low nibble.
        scales_XY: float8_e4m3fn, one a block of 16 columns.
        amax_X: outer scale's numerator, broadcast over the leading dimensions.
        denominator_X: its denominator, likewise.
        dtype: of the result; rounded to it once.

    Returns:
        `[X, C]`; NaN where a scale is NaN.
    """
    values = torch.tensor((*E2M1, *(-one for one in E2M1)), device=codes_XP.device)
    byte = torch.arange(256, device=codes_XP.device)
    pairs = torch.stack((values[byte & 15], values[byte >> 4]), dim=-1)
    columns = pairs.index_select(0, codes_XP.flatten().int())
    blocks_XYB = columns.view(*scales_XY.shape, BLOCK)
    factor_X = amax_X.float() / denominator_X.float()
    blocks_XYB = blocks_XYB * scales_XY.float()[..., None] * factor_X[..., None, None]
    return blocks_XYB.flatten(-2).to(dtype)


def quantize_nvfp4(
    x_XC: Tensor, amax_X: Tensor, denominator: float = FOUR_OVER_SIX, four_over_six: bool = True
) -> tuple[Tensor, Tensor]:
    """NVFP4 of each block, by Four-Over-Six or with every block's largest magnitude at 6.

    Args:
        x_XC: finite, any float dtype; C a multiple of 16.
        amax_X: float32, broadcast over the leading dimensions: `x.abs().amax(-1)` for activations
            (one outer scale a token), an expert's largest magnitude for weights.
        denominator: 1536 for Four-Over-Six.
        four_over_six: False keeps the candidate 6 everywhere.

    Returns:
        codes `[X, P]` uint8 and scales `[X, Y]` float8_e4m3fn.

    Raises:
        ValueError: columns that do not fill blocks, a value that is not finite, an `amax` that is
            not positive over values that are not zero, or a denominator whose block scales times
            1.5 do not fit e4m3.
    """
    if four_over_six and not 0 < denominator <= 4 * E4M3_MAX:
        raise ValueError(
            f"denominator = {denominator}: Four-Over-Six needs block scales up to "
            f"{denominator / 4:g}, e4m3 ends at {E4M3_MAX:g}; use {FOUR_OVER_SIX:g}"
        )
    blocks_XYB = finite_blocks(x_XC, BLOCK)
    amax_XY = amax_X.float()[..., None].expand(blocks_XYB.shape[:-1])
    largest_XY = blocks_XYB.abs().amax(-1)
    if not ((amax_XY > 0) & amax_XY.isfinite() | (largest_XY == 0)).all():
        raise ValueError("amax must be positive and finite wherever a value is not zero")
    scale_XY = torch.where(largest_XY == 0, 0.0, largest_XY / 6 * (denominator / amax_XY))
    signed, scales, error = _candidate(blocks_XYB, scale_XY, amax_XY, denominator)
    if four_over_six:
        signed4, scales4, error4 = _candidate(blocks_XYB, scale_XY * 1.5, amax_XY, denominator)
        four_XY = error4 < error  # ties go to 6
        signed = torch.where(four_XY[..., None], signed4, signed)
        scales = torch.where(four_XY, scales4, scales)
    return _pack(signed.flatten(-2)), scales.to(torch.float8_e4m3fn)


def _candidate(
    blocks_XYB: Tensor, scale_XY: Tensor, amax_XY: Tensor, denominator: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks on the e2m1 grid (float32), their rounded scales (float32), the sums of errors."""
    # clamped, because what lies beyond e4m3 turns into NaN by some casts and saturates by others
    rounded_XY = scale_XY.clamp(max=E4M3_MAX).to(torch.float8_e4m3fn).float()
    step_XY = rounded_XY * (1 / (denominator / amax_XY))
    on_grid = _round_e2m1(blocks_XYB * (1 / step_XY)[..., None])
    on_grid = torch.where(rounded_XY[..., None] == 0, 0.0, on_grid)
    decoded = on_grid * rounded_XY[..., None] * amax_XY[..., None] / denominator
    return on_grid, rounded_XY, (decoded - blocks_XYB).abs().sum(-1)


def _round_e2m1(x: Tensor) -> Tensor:
    """Nearest of the grid, ties to the even code, beyond 6 to 6; signed zeros stay signed."""
    magnitude = x.abs()
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    return ((magnitude / step).round() * step).clamp(max=6).copysign(x)


def _pack(on_grid_XC: Tensor) -> Tensor:
    """Two columns a byte, the even one in the low nibble."""
    grid = torch.tensor(E2M1, device=on_grid_XC.device)
    index = torch.bucketize(on_grid_XC.abs(), grid).to(torch.uint8)
    codes = index | (on_grid_XC.signbit().to(torch.uint8) << 3)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)
