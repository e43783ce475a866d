"""Gated activation silu(gate) * up over the published interleaved layout.

Not a projection. Row 2i of a published `w13` tensor is gate row i and row 2i + 1 is up row i, so
the projected columns arrive as gate0, up0, gate1, up1, ...
"""

import torch.nn.functional as F
from torch import Tensor


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """`[..., 2I]` interleaved -> `[..., I]`, in the dtype of the input."""
    gate, up = gate_up.unflatten(-1, (-1, 2)).unbind(-1)
    return F.silu(gate) * up
