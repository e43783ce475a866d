"""e4m3 numbers brought into what Gaudi 2 can hold: 240, where the usual e4m3 ends at 448.

On Gaudi 2 the largest exponent means infinity and NaN, as in IEEE formats, so codes from 256 to 448
cannot be sent to it. Both block formats have a power of two to move:

    MXFP8   code / 2, scale byte + 1        block by block, only where a code is beyond 240
    NVFP4   block scale / 2, amax * 2       expert by expert, only where a scale is beyond 240

Exact but for the least numbers: a code below 2^-5 with an odd last bit (16 of the 254 finite codes)
has no half in e4m3 and rounds to even, half of its last bit away. It lies beside a code beyond 240,
so the error is at most 2^-17 of the largest value of the block (MXFP8) or of the largest block
scale of the expert (NVFP4).

Not needed for experts decoded to bf16 before they reach the card, which is how they are loaded
here; needed by whoever keeps e4m3 on it.
"""

import torch
from torch import Tensor

GAUDI2_E4M3_MAX = 240.0


def fit_mxfp8(codes_XC: Tensor, scales_XY: Tensor) -> tuple[Tensor, Tensor]:
    """MXFP8 with no code beyond 240.

    Args:
        codes_XC: float8_e4m3fn, no NaN.
        scales_XY: uint8, one a block of 32 columns, no 255.

    Returns:
        The same shapes and dtypes; equal values but for the rounding said above.

    Raises:
        ValueError: a block to be halved whose scale is already the largest, 2^127.
    """
    blocks_XYB = codes_XC.float().unflatten(-1, (scales_XY.shape[-1], -1))
    beyond_XY = blocks_XYB.abs().amax(-1) > GAUDI2_E4M3_MAX
    if (beyond_XY & (scales_XY >= 254)).any():
        raise ValueError("a block beyond 240 has the scale 2^127: there is no larger power of two")
    halved = torch.where(beyond_XY[..., None], blocks_XYB / 2, blocks_XYB)
    return halved.flatten(-2).to(codes_XC.dtype), scales_XY + beyond_XY.to(scales_XY.dtype)


def fit_nvfp4(scales_ERY: Tensor, amax_E: Tensor) -> tuple[Tensor, Tensor]:
    """Block scales with none beyond 240, and the outer scales that make up for it.

    Args:
        scales_ERY: float8_e4m3fn, no NaN.
        amax_E: float32, at most half of the largest float32.

    Returns:
        The same shapes and dtypes; equal values but for the rounding said above.
    """
    scales = scales_ERY.float()
    beyond_E = scales.amax((1, 2)) > GAUDI2_E4M3_MAX
    halved = torch.where(beyond_E[:, None, None], scales / 2, scales)
    return halved.to(scales_ERY.dtype), torch.where(beyond_E, amax_E * 2, amax_E)
