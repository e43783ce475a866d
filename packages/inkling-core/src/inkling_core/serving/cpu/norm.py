"""RMS norm in two calls; law: `inkling_core.ops.norm`.

Not a fused weight: the normalised value is rounded to the input dtype before the weight
multiplies it, so the weight stays outside of torch's own rms_norm.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See `inkling_core.ops.rms_norm`: same arguments, same result."""
    normed = F.rms_norm(x, (x.shape[-1],), None, eps)
    return normed if weight is None else weight.to(x.dtype) * normed
