"""Whether the scales of one expert can be those of its codes: a wrong scale is refused, never used.

    MXFP8   no code and no scale is NaN; every product is finite in bf16
    NVFP4   A finite and >= 0, D finite and > 0, no block scale NaN or negative, and the largest
            block scale within one e4m3 step of D/6 .. D/4

The last line holds for what Four-Over-Six and plain NVFP4 write: the block that holds A is stored
as 6 * D/6 * A/D or, where its largest magnitude was put at 4, as 4 * D/4 * A/D. So amax and
denominator swapped, or D = 2688 where 1536 is meant, shows. A rank that holds a part of an expert
need not hold that block: for it the lower limit does not apply. Values are plain tensors; which
file they come from is `expert_reader`'s.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

E4M3_STEP = 17 / 16
"""Rounding to e4m3 moves a normal number by at most this factor."""

LARGEST_POWER = 246
"""The byte of 2^119: 448 * 2^119 is the last that bf16 and float32 hold."""


def mxfp8_problem(codes_RC: Tensor, scales_RY: Tensor, *, whole: bool) -> str | None:
    """What is wrong with one expert's MXFP8 tensors; None where nothing is."""
    del whole  # every block stands alone
    nan_scales = int((scales_RY.view(torch.uint8) == 255).sum())
    if nan_scales:
        return f"{nan_scales} of {scales_RY.numel()} scales are 255, which is NaN"
    nan_codes = int((codes_RC.view(torch.uint8) & 0x7F == 0x7F).sum())
    if nan_codes:
        return f"{nan_codes} of {codes_RC.numel()} codes are NaN"
    largest = int(scales_RY.view(torch.uint8).max())
    if largest > LARGEST_POWER:
        return f"a scale of 2^{largest - 127} takes a code of 448 beyond what bf16 holds"
    return None


def nvfp4_problem(
    codes_RP: Tensor, scales_RY: Tensor, amax: Tensor, denominator: Tensor, *, whole: bool
) -> str | None:
    """What is wrong with one expert's NVFP4 tensors; None where nothing is."""
    del codes_RP  # every byte is a pair of codes
    top, divisor = float(amax), float(denominator)
    if not (math.isfinite(top) and top >= 0):
        return f"amax = {top} must be finite and not negative"
    if not (math.isfinite(divisor) and divisor > 0):
        return f"outer_scale_denominator = {divisor} must be finite and positive"
    scales = scales_RY.float()
    wrong = int((~(scales >= 0)).sum())
    if wrong:
        return f"{wrong} of {scales.numel()} block scales are NaN or negative"
    largest = float(scales.max())
    if top == 0:
        return None if largest == 0 else f"amax = 0, yet a block scale is {largest:g}"
    low, high = divisor / 6 / E4M3_STEP, divisor / 4 * E4M3_STEP
    if largest > high or (whole and largest < low):
        return (
            f"the largest block scale is {largest:g}; with outer_scale_denominator = {divisor:g} "
            f"it lies in {divisor / 6:g}..{divisor / 4:g}, so amax, denominator and scales do not "
            "belong together"
        )
    return None


PROBLEM = {"MXFP8": mxfp8_problem, "NVFP4": nvfp4_problem}
