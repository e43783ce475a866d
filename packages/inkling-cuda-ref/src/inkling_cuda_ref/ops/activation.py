"""Gated activation silu(gate) * up over the interleaved layout; law: `inkling_core.ops.activation`.

Not a projection (`experts` has the activation inside its grouped product). Even columns are gate,
odd columns are up; silu is rounded to the input dtype before it multiplies.
"""

import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.storage import launch, stored, tile
from inkling_cuda_ref.tile_math import gated


@triton.jit
def _activation_kernel(gate_up_ptr, out_ptr, total, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    gate = tl.load(gate_up_ptr + 2 * index, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + 2 * index + 1, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, stored(gated(gate, up, dtype, WIDE), dtype, WIDE), mask=inside)


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """`[..., 2I]` interleaved -> `[..., I]`, in the dtype of the input."""
    gate_up = gate_up.contiguous()
    out = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
    total = out.numel()
    block = tile(total, 1024, 1 << 17)
    launch(_activation_kernel, (triton.cdiv(total, block),), gate_up, out, total, BLOCK=block)
    return out
