"""`FusedSDPA.apply` and `torch.ops.hpu.sdpa_recomp_fwd`: dense softmax attention in float32.

    apply                out = softmax(scale * q k^T + mask) v
    sdpa_recomp_fwd      out, row maximum, 1 / row sum, seed; sums times `sum_factor` in "fast" mode

Shapes: q [B, N, Sq, H]; k and v [B, G, S, H], N a multiple of G; mask [B or 1, N or 1, Sq, S],
added. The raw op takes heads by group as well: q [B, G, N / G, Sq, H], k and v [B, G, 1, S, H], as
`gqa_input_reshape_fwd` makes them. Rules of the bridge that are kept, because callers trip over
them: valid lengths need is_causal, and is_causal cannot be combined with a mask, so a mask has to
hold causality, window and padding itself. A mask of 2^31 bytes or more is refused: it overflows on
the device.

What it is not: the kernel's rounding (its fast softmax is bfloat16). Sinks, dropout: refused.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import torch
from torch import Tensor

from inkling_hpu.emulation.settings import EmulationSettings

MASK_BYTES = 2**31
SCHEMA = (
    "sdpa_recomp_fwd(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, float dropout_p, "
    "float scale, bool is_causal, bool requires_backward, str softmax_mode, Tensor? valid_seq_len, "
    "str seq_padding_type) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY: list[torch.library.Library] = []


class Attended(NamedTuple):
    """out [B, N, Sq, H] float32; row maximum and 1 / row sum, [B, N, Sq, 1] float32."""

    out: Tensor
    row_max: Tensor
    inverse_sum: Tensor


class FusedSDPA:
    """Called as `FusedSDPA.apply(q, k, v, mask, ...)`; the order of arguments is the bridge's."""

    @staticmethod
    def apply(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute: bool | None = None,
        valid_seq_len: Tensor | None = None,
        seq_padding_type: str = "left",
        fp8_dq: bool = False,
        fp8_mode: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        sinks: Tensor | None = None,
    ) -> Tensor:
        """[B, N, Sq, H] in the dtype of q. Raises ValueError for what the bridge refuses."""
        if sinks is not None or dropout_p:
            raise NotImplementedError("FusedSDPA: sinks and dropout are not emulated")
        if valid_seq_len is not None and seq_padding_type != "right":
            raise NotImplementedError(f"FusedSDPA: seq_padding_type={seq_padding_type!r}")
        _check(q, k, attn_mask, is_causal, valid_seq_len)
        hidden = _hidden(q, k, is_causal, valid_seq_len, window_size)
        return attend(q, k, v, attn_mask, hidden, scale).out.to(q.dtype)


def is_gqa(q: Tensor, k: Tensor) -> bool:
    """Whether several query heads share a key head."""
    return q.shape[1] != k.shape[1]


def gqa_input_reshape_fwd(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Heads by group, in five dimensions; a mask of one head stays one for all."""
    groups = k.shape[1]
    if attn_mask is not None:
        shared = attn_mask.shape[1] == 1
        attn_mask = attn_mask[:, None] if shared else attn_mask.unflatten(1, (groups, -1))
    return q.unflatten(1, (groups, -1)), k[:, :, None], v[:, :, None], attn_mask


def gqa_output_reshape(x: Tensor) -> Tensor:
    """Back to `[B, N, ...]`."""
    return x.flatten(1, 2)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    hidden: Tensor | None,
    scale: float | None,
) -> Attended:
    """Dense attention. hidden: keys that a query must not see, broadcasts to [B, 1, Sq, S]."""
    groups = q.shape[1] // k.shape[1]
    k_wide, v_wide = (x.float().repeat_interleave(groups, dim=1) for x in (k, v))
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    logits = q.float() @ k_wide.transpose(-1, -2) * factor
    if mask is not None:
        logits = logits + mask.float()
    if hidden is not None:
        logits = logits.masked_fill(hidden, -math.inf)
    row_max = logits.amax(-1, keepdim=True)
    weights = (logits - row_max).exp()
    inverse = 1.0 / weights.sum(-1, keepdim=True)
    return Attended(weights @ v_wide * inverse, row_max, inverse)


def _hidden(
    q: Tensor,
    k: Tensor,
    is_causal: bool,
    valid_seq_len: Tensor | None,
    window_size: tuple[int, int] | None,
) -> Tensor | None:
    queries = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    keys = torch.arange(k.shape[2], device=q.device)[None, :]
    hidden = torch.zeros(1, 1, q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if is_causal:
        hidden = hidden | (keys > queries)
    if window_size is not None and window_size[0] >= 0:
        hidden = hidden | (queries - keys > window_size[0])
    if valid_seq_len is not None:
        hidden = hidden | (keys >= valid_seq_len.view(-1, 1, 1, 1))
    return hidden if bool(hidden.any()) else None


def _check(
    q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, valid_seq_len: Tensor | None
) -> None:
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"FusedSDPA: {q.shape[1]} query heads over {k.shape[1]} key heads")
    if valid_seq_len is not None and not is_causal:
        raise ValueError("FusedSDPA: valid_seq_len needs is_causal=True")
    if mask is None:
        return
    if is_causal:
        raise ValueError("FusedSDPA: a mask cannot be combined with is_causal=True")
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = [have in (want, 1) for have, want in zip(mask.shape, wanted, strict=False)]
    if mask.dim() != 4 or not all(fits) or mask.shape[2:] != wanted[2:]:
        raise ValueError(f"FusedSDPA: mask {tuple(mask.shape)} does not fit {wanted}")
    if mask.numel() * mask.element_size() >= MASK_BYTES:
        raise ValueError(
            f"FusedSDPA: mask {tuple(mask.shape)} of {mask.dtype} has "
            f"{mask.numel() * mask.element_size()} bytes; below {MASK_BYTES} is safe"
        )


def register() -> None:
    """Define the op that also returns the row maximum and the inverse row sum."""
    if _LIBRARY:
        return
    library = torch.library.Library("hpu", "FRAGMENT")
    library.define(SCHEMA)
    library.impl("sdpa_recomp_fwd", _recomp_forward, "CPU")
    _LIBRARY.append(library)


def _recomp_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    scale: float,
    is_causal: bool,
    requires_backward: bool,
    softmax_mode: str,
    valid_seq_len: Tensor | None,
    seq_padding_type: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not requires_backward:
        raise NotImplementedError("sdpa_recomp_fwd: row sums come with requires_backward=True only")
    by_group = q.dim() == 5
    if by_group:
        sizes = q.shape[1:3]
        q, k, v = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)
        if attn_mask is not None:
            wide = attn_mask.shape[1:3] != (1, 1)
            attn_mask = attn_mask.expand(-1, *(sizes if wide else (1, 1)), -1, -1).flatten(1, 2)
    _check(q, k, attn_mask, is_causal, valid_seq_len)
    hidden = _hidden(q, k, is_causal, valid_seq_len, None)
    done = attend(q, k, v, attn_mask, hidden, scale)
    factor = EmulationSettings.from_environment(os.environ).sum_factor
    sums = done.inverse_sum / (factor if softmax_mode == "fast" else 1.0)
    found = (done.out.to(q.dtype), done.row_max, sums)
    out, top, inverse = (x.unflatten(1, sizes) if by_group else x for x in found)
    return out, top, inverse, torch.zeros(1, dtype=torch.int32)
