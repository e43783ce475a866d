"""RMS norm in two calls; law: `inkling_core.ops.norm`.

Not a fused weight: the normalised value is rounded to the input dtype before the weight
multiplies it, so the weight stays outside of torch's own rms_norm, and vLLM's
kernel, where it is loaded, is given a weight of ones.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from inkling_core.serving.cpu.kernels import fused_norm


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See `inkling_core.ops.rms_norm`: same arguments, same result."""
    kernels = fused_norm(x.dtype, x.shape[-1])
    if kernels is None:
        normed = F.rms_norm(x, (x.shape[-1],), None, eps)
    else:
        normed = torch.empty_like(x, memory_format=torch.contiguous_format)
        kernels.rms_norm(normed, x.contiguous(), _ones(x.shape[-1], x.dtype), eps)
    return normed if weight is None else weight.to(x.dtype) * normed


@lru_cache(maxsize=16)  # one per width and dtype of a model
def _ones(width: int, dtype: torch.dtype) -> Tensor:
    return torch.ones(width, dtype=dtype)
