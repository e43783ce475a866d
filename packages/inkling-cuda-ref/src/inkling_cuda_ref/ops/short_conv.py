"""Causal depthwise short convolution with its residual; law: `inkling_core.ops.short_conv`.

Not the owner of any state. A program computes some tokens of some channels; inputs from before a
request's first token come from its history, so requests never see each other:

    y[t, c] = x[t, c] + sum_w weight[c, w] * before[t - J + w, c],   J = W - 1, the last tap is t
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_cuda_ref.packing import packing
from inkling_cuda_ref.storage import launch, stored, tile
from inkling_cuda_ref.tile_math import convolved


@triton.jit
def _conv_kernel(
    x_ptr,
    history_ptr,
    weight_ptr,
    owner_ptr,
    first_ptr,
    out_ptr,
    num_tokens,
    width,
    TAPS: tl.constexpr,
    TOKENS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    packed = token < num_tokens
    owner = tl.load(owner_ptr + token, mask=packed, other=-1)
    first = tl.load(first_ptr + token, mask=packed, other=0)
    within = packed[:, None] & (channel < width)
    owned = within & (owner >= 0)[:, None]
    y = convolved(x_ptr, history_ptr, weight_ptr, owner, first, token, channel, owned, width, TAPS)
    offset = token[:, None] * width + channel
    tl.store(out_ptr + offset, stored(y, dtype, WIDE), mask=within)


def short_conv(
    x_TC: Tensor, history_QJC: Tensor, weight_CW: Tensor, starts: Sequence[int]
) -> Tensor:
    """See `inkling_core.ops.short_conv`: same arguments, same result."""
    num_tokens, width = x_TC.shape
    packed = packing(starts, num_tokens, x_TC.device)
    out_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
    channels = tile(width, 256, 4096)
    tokens = tile(num_tokens, 16, (1 << 17) // channels)
    launch(
        _conv_kernel,
        (triton.cdiv(num_tokens, tokens), triton.cdiv(width, channels)),
        x_TC.contiguous(),
        history_QJC.contiguous(),
        weight_CW.contiguous(),
        packed.owner_T,
        packed.first_T,
        out_TC,
        num_tokens,
        width,
        TAPS=weight_CW.shape[1],
        TOKENS=tokens,
        CHANNELS=channels,
    )
    return out_TC
