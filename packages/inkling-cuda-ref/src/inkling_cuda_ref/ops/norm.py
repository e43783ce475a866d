"""RMS norm, one pass over each row; law: `inkling_core.ops.norm`.

Not split over a row: a row lies in one tile, so a hidden size of up to 16,384 is meant. The
normalised value is rounded to the input dtype before the weight multiplies it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.storage import launch, power_of_2, rounded, stored, tile
from inkling_cuda_ref.tile_math import normed_rows


@triton.jit
def _norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    num_rows,
    width,
    eps,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    offset = row[:, None] * width + column[None, :]
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    if WEIGHTED:
        weight = tl.load(weight_ptr + column, mask=column < width, other=0.0).to(tl.float32)
        weight = rounded(weight, dtype, WIDE)[None, :]
    else:
        weight = 1.0
    y = normed_rows(x, weight, width, eps, dtype, WIDE)
    tl.store(out_ptr + offset, stored(y, dtype, WIDE), mask=inside)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See `inkling_core.ops.rms_norm`: same arguments, same result."""
    width = x.shape[-1]
    x = x.contiguous()
    out = torch.empty_like(x)
    columns = power_of_2(width)
    num_rows = x.numel() // width
    rows = tile(num_rows, 4096 // columns, (1 << 18) // columns)
    launch(
        _norm_kernel,
        (triton.cdiv(num_rows, rows),),
        x,
        x if weight is None else weight,
        out,
        num_rows,
        width,
        eps,
        WEIGHTED=weight is not None,
        ROWS=rows,
        COLUMNS=columns,
    )
    return out
