"""Gated activation of the dense MLP: the law's own body, two ops. Law: `inkling_core.ops`.

Not the experts' activation: that one is inside the expert kernel.
"""

from torch import Tensor

from inkling_core import ops as law


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `inkling_core.ops.silu_and_mul`: same argument, same result."""
    return law.silu_and_mul(gate_up)
