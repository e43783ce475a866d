"""RMS norm: x / sqrt(mean(x^2) + eps), then times the weight.

Not a module and not fused with anything. First-generation rule: the normalised value is rounded
to the input dtype *before* the weight multiplies it.
"""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Normalises the last dimension.

    Args:
        x: `[..., D]`, any float dtype; the mean and the root are float32.
        weight: `[D]` or None for an unweighted norm.
        eps: added to the mean square.

    Returns:
        `[..., D]` in the dtype of `x`.
    """
    x_f = x.float()
    normed = (x_f * torch.rsqrt(x_f.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normed if weight is None else (weight.to(x.dtype) * normed)
