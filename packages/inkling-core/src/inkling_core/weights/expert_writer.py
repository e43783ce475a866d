"""Puts an expert weight into the tensors of a block format, as a release would have stored it.

For tiny checkpoints and tests, not a quantiser to ship a model with: rounding only, nothing is
calibrated. NVFP4 is Four-Over-Six with an expert's largest magnitude as amax, MXFP8 has the scale
rounded up.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inkling_core.ops.mxfp8 import quantize_mxfp8
from inkling_core.ops.nvfp4 import FOUR_OVER_SIX, quantize_nvfp4
from inkling_core.weights.expert_formats import stored_parts
from inkling_core.weights.names import TensorSpec


def stored_tensors(spec: TensorSpec, weight: Tensor) -> dict[str, Tensor]:
    """The tensors that hold `weight` in the format `spec.dtype`, by name in the file.

    Raises:
        ValueError: a weight whose columns do not fill blocks, or with a value that is not finite.
    """
    names = [part.name for part in stored_parts(spec)]
    if spec.dtype == "MXFP8":
        return dict(zip(names, quantize_mxfp8(weight), strict=True))
    if spec.dtype == "NVFP4":
        amax_E = weight.float().abs().amax((1, 2))
        codes, scales = quantize_nvfp4(weight, amax_E[:, None])
        denominator_E = torch.full_like(amax_E, FOUR_OVER_SIX)
        return dict(zip(names, (codes, scales, amax_E, denominator_E), strict=True))
    return {spec.name: weight}
