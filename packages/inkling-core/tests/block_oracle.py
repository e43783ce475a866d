"""MXFP8 and NVFP4 decoded bit by bit in numpy, from the definitions of the formats alone.

The independent side of the tests of `ops.mxfp8`, `ops.nvfp4` and the expert reader: it shares no
table, no dtype and no order of loops with them. Values are float64 where every product is exact,
float32 step by step where the order of operations is part of the format.
"""

import numpy as np


def e4m3(byte: int) -> float:
    """One sign, four exponent bits of bias 7, three of mantissa; all ones is NaN, no infinity."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if byte & 128 else magnitude


def e2m1(code: int) -> float:
    """One sign, two exponent bits of bias 1, one of mantissa."""
    exponent, mantissa = code >> 1 & 3, code & 1
    magnitude = mantissa * 0.5 if exponent == 0 else (2 + mantissa) * 2.0 ** (exponent - 2)
    return -magnitude if code & 8 else magnitude


def e8m0(byte: int) -> float:
    """A power of two; 255 is NaN."""
    return float("nan") if byte == 255 else 2.0 ** (byte - 127)


E4M3 = np.array([e4m3(byte) for byte in range(256)])
E2M1 = np.array([e2m1(code) for code in range(16)])
E8M0 = np.array([e8m0(byte) for byte in range(256)])


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Float32 rounded to the nearest bf16, ties to even, as float32. Finite values only."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def mxfp8(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Bytes `[..., C]` and `[..., C/32]` -> float64 values; exact."""
    return E4M3[codes] * np.repeat(E8M0[scales], 32, axis=-1)


def nvfp4_columns(codes: np.ndarray) -> np.ndarray:
    """Bytes `[..., C/2]` -> e2m1 values `[..., C]`: low nibble first."""
    columns = np.empty((*codes.shape[:-1], codes.shape[-1] * 2))
    columns[..., 0::2] = E2M1[codes & 15]
    columns[..., 1::2] = E2M1[codes >> 4]
    return columns


def nvfp4(
    codes: np.ndarray, scales: np.ndarray, amax: np.ndarray, denominator: np.ndarray
) -> np.ndarray:
    """Bytes and float32 numbers -> float32: (value * block scale) * (amax / denominator)."""
    block = np.repeat(E4M3[scales].astype(np.float32), 16, axis=-1)
    factor = amax.astype(np.float32) / denominator.astype(np.float32)
    return nvfp4_columns(codes).astype(np.float32) * block * factor[..., None, None]
