"""The joined steps of `inkling_core.joined` in one launch each; the decoder calls them there.

Not ops: bodies of the same kernels, without the passes over memory between two ops.

    qkvr_prep_and_write   K/V convolution, norms, relative logits; keys and values stored in pages
    conv_add_norm         stream += short_conv(delta), then rms_norm of the stream

JOINED is what `backend.CUDA_REF` offers.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from inkling_core.kv_cache import KVCache
from inkling_core.ops import QkvrWeights
from inkling_core.step import Step
from inkling_cuda_ref.packing import packing
from inkling_cuda_ref.prep_kernel import prepared_into
from inkling_cuda_ref.storage import launch, power_of_2, rounded, stored, tile
from inkling_cuda_ref.tile_math import convolved, normed_rows


def qkvr_prep_and_write(
    q_TC: Tensor,
    k_TC: Tensor,
    v_TC: Tensor,
    r_TC: Tensor,
    weights: QkvrWeights,
    k_history_QJC: Tensor,
    v_history_QJC: Tensor,
    tau_T: Tensor | None,
    eps: float,
    kv: KVCache,
    layer: int,
    step: Step,
) -> tuple[Tensor, Tensor]:
    """See `inkling_core.joined`: same arguments behind the op, same result. Padding tokens write
    nothing; `kv` is written at `step.slots_T`."""
    return prepared_into(
        kv.keys[layer], kv.values[layer], step.slots_T, q_TC, k_TC, v_TC, r_TC, weights,
        k_history_QJC, v_history_QJC, step.starts, tau_T, eps,
    )  # fmt: skip


@triton.jit
def _conv_add_norm_kernel(
    stream_ptr,
    delta_ptr,
    history_ptr,
    conv_ptr,
    norm_ptr,
    owner_ptr,
    first_ptr,
    stream_out_ptr,
    normed_out_ptr,
    num_tokens,
    width,
    eps,
    TAPS: tl.constexpr,
    TOKENS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    dtype: tl.constexpr = stream_out_ptr.dtype.element_ty
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, COLUMNS)[None, :]
    packed = token < num_tokens
    owner = tl.load(owner_ptr + token, mask=packed, other=-1)
    first = tl.load(first_ptr + token, mask=packed, other=0)
    inside = packed[:, None] & (column < width)
    owned = inside & (owner >= 0)[:, None]
    delta = convolved(
        delta_ptr, history_ptr, conv_ptr, owner, first, token, column, owned, width, TAPS
    )
    offset = token[:, None] * width + column
    stream = tl.load(stream_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    stream = rounded(stream + rounded(delta, dtype, WIDE), dtype, WIDE)
    tl.store(stream_out_ptr + offset, stored(stream, dtype, WIDE), mask=inside)
    weight = tl.load(norm_ptr + column, mask=column < width, other=0.0).to(tl.float32)
    normed = normed_rows(stream, rounded(weight, dtype, WIDE), width, eps, dtype, WIDE)
    tl.store(normed_out_ptr + offset, stored(normed, dtype, WIDE), mask=inside)


def conv_add_norm(
    stream_TD: Tensor,
    delta_TD: Tensor,
    history_QJD: Tensor,
    conv_DW: Tensor,
    starts: Sequence[int],
    norm_D: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """See `inkling_core.joined`: same arguments behind the ops, same result; padding keeps its
    stream."""
    num_tokens, width = stream_TD.shape
    packed = packing(starts, num_tokens, stream_TD.device)
    out_TD, normed_TD = (torch.empty_like(stream_TD) for _ in range(2))
    columns = power_of_2(width)
    tokens = tile(num_tokens, max(1, 4096 // columns), (1 << 17) // columns)
    launch(
        _conv_add_norm_kernel, (triton.cdiv(num_tokens, tokens),),
        stream_TD.contiguous(), delta_TD.contiguous(), history_QJD.contiguous(),
        conv_DW.contiguous(), norm_D, *packed, out_TD, normed_TD, num_tokens, width, eps,
        TAPS=conv_DW.shape[1], TOKENS=tokens, COLUMNS=columns,
    )  # fmt: skip
    return out_TD, normed_TD


JOINED = {"qkvr_prep_and_write": qkvr_prep_and_write, "conv_add_norm": conv_add_norm}
