"""Vocabulary head; law: `inkling_core.ops.logits`.

Not the norm and not sampling. The division comes first, rounded to the model dtype, and is done
while a tile of `x` is read.
"""

import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.storage import launch, multiplied, operand, stored, tile


@triton.jit
def _logits_kernel(
    x_ptr,
    unembed_ptr,
    out_ptr,
    num_tokens,
    vocabulary,
    depth,
    multiplier,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    # neighbours share columns of the table, which is the larger operand
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.full((TOKENS, COLUMNS), 0.0, tl.float32)
    for first in range(0, depth, DEPTH):
        d = first + tl.arange(0, DEPTH)
        inside = (token < num_tokens)[:, None] & (d < depth)[None, :]
        x = tl.load(x_ptr + token[:, None] * depth + d[None, :], mask=inside, other=0.0)
        x = multiplied(x.to(tl.float32) / multiplier, dtype, WIDE)
        known = (column < vocabulary)[None, :] & (d < depth)[:, None]
        table = tl.load(unembed_ptr + column[None, :] * depth + d[:, None], mask=known, other=0.0)
        acc += tl.dot(x, operand(table, WIDE), input_precision="ieee")
    inside = (token < num_tokens)[:, None] & (column < vocabulary)[None, :]
    offset = token[:, None] * vocabulary + column[None, :]
    tl.store(out_ptr + offset, stored(acc, dtype, WIDE), mask=inside)


def logits(x_TD: Tensor, unembed_VD: Tensor, multiplier: float) -> Tensor:
    """`[T, D]` final-normed hidden states -> `[T, V]` logits, in the dtype of `x_TD`."""
    (num_tokens, depth), vocabulary = x_TD.shape, unembed_VD.shape[0]
    out_TV = x_TD.new_empty(num_tokens, vocabulary)
    tokens = max(16, tile(num_tokens, 64, 1024))
    columns = max(16, tile(vocabulary, 128, 4096))
    launch(
        _logits_kernel,
        (triton.cdiv(num_tokens, tokens), triton.cdiv(vocabulary, columns)),
        x_TD.contiguous(),
        unembed_VD.contiguous(),
        out_TV,
        num_tokens,
        vocabulary,
        depth,
        multiplier,
        TOKENS=tokens,
        COLUMNS=columns,
        DEPTH=max(16, tile(depth, 64, 4096)),
    )
    return out_TV
