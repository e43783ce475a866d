"""What several kernels do to a tile that is already in registers: norm, gate, convolution.

Not kernels: device functions, so that an op and its joined form share one body. Float32 in and out;
`dtype` says where the law rounds to the model's dtype on the way.
"""

# Kernel bodies are Triton's language, which Python's types do not describe.
# pyright: reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false

import triton.language as tl

from inkling_cuda_ref.storage import device, rounded


@device
def normed_rows(x, weight, width, eps, dtype: tl.constexpr, WIDE: tl.constexpr):
    """float32 `[rows, columns]` normalised over `width` columns (the rest is zero), weighted."""
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / width + eps)
    return rounded(x * scale[:, None], dtype, WIDE) * weight


@device
def sigmoid(x):
    """1 / (1 + exp(-x)) without an overflow on either side."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@device
def gated(gate, up, dtype: tl.constexpr, WIDE: tl.constexpr):
    """float32 silu(gate) * up, rounded to `dtype` after each of the two steps."""
    silu = rounded(gate * sigmoid(gate), dtype, WIDE)
    return rounded(silu * up, dtype, WIDE)


@device
def convolved(
    x_ptr, history_ptr, weight_ptr, owner, first, token, channel, inside, width, TAPS: tl.constexpr
):
    """float32 x + conv(x) of a tile of tokens and channels.

    owner, first, token: `[rows]`. channel: `[1, columns]` or `[rows, columns]`. inside: `[rows,
    columns]`; rows without an owner must be outside.
    """
    past: tl.constexpr = TAPS - 1
    offset = token[:, None] * width + channel
    mixed = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    for w in tl.static_range(TAPS):
        source = token - past + w
        here = (source >= first)[:, None] & inside
        before = (source < first)[:, None] & inside
        row = owner.to(tl.int64) * past + past + source - first
        fresh = tl.load(x_ptr + offset + (w - past) * width, mask=here, other=0.0)
        old = tl.load(history_ptr + row[:, None] * width + channel, mask=before, other=0.0)
        tap = tl.load(weight_ptr + channel * TAPS + w, mask=channel < width, other=0.0)
        mixed += tap.to(tl.float32) * (fresh.to(tl.float32) + old.to(tl.float32))
    return mixed
