"""RMS norm as one kernel; law: `inkling_core.ops.norm`.

Not a promise about the kernel's rounding: the law rounds the normalised value to the input dtype
before the weight multiplies it, a fused kernel may round once. In float32 they agree.
"""

from torch import Tensor

from inkling_hpu import markers


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See `inkling_core.ops.rms_norm`: same arguments, same result."""
    return markers.rms_norm(x, weight, eps)
