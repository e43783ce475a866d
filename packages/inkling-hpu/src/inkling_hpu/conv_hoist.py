"""Short convolutions of a decode step, their old inputs weighed once for all layers and streams.

    mixed[q, x]  = sum over j < J of taps[j, x] * history[q, j, x]     once a step, x = all channels
    y[q, c]      = mixed[q, c] + (taps[J, c] + 1) * token[q, c]        in a layer: one op and a cast

The residual of the convolution is folded into the tap of the token itself. Channels of all streams
lie side by side as in the conv rows (`conv_rows`), which gather the histories in one go.

What it is not: the law (`inkling_core.ops.short_conv`), the op that runs where nothing was weighed
(`ops.short_conv`), or the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout
from inkling_core.model import Decoder
from inkling_hpu.ops.short_conv import short_conv


@dataclass(frozen=True, eq=False)
class PackedTaps:
    """Taps of neighbouring layers, side by side as their channels lie in a conv row; float32.

    old_JX: [J, X] taps of the history. token_X: [X] tap of the token itself, plus one.
    """

    old_JX: Tensor
    token_X: Tensor


def packed_taps(decoder: Decoder, layout: ConvLayout) -> Tensor:
    """`[W, layers * width]` float32: the taps of every stream in its place, zeros where a layer has
    fewer key/value channels than a row has room for."""
    columns: list[Tensor] = []
    room = sum(layout.widths[:2])
    for block in decoder.layers:
        sides = [block.attn.k_sconv.weight[:, 0], block.attn.v_sconv.weight[:, 0]]
        spare = room - sum(len(side) for side in sides)
        columns += [*sides, sides[0].new_zeros(spare, layout.taps)]
        columns += [block.attn_sconv.weight[:, 0], block.mlp_sconv.weight[:, 0]]
    return torch.cat(columns).T.contiguous()


@dataclass(frozen=True, eq=False)
class WeighedHistory:
    """What the rows of a decode step bring to one convolution.

    history_QJC: the inputs themselves, as a conv store hands them out.
    mixed_QC: float32 [Q, C], weighed and summed. token_C: float32 [C], see `PackedTaps`.
    """

    history_QJC: Tensor
    mixed_QC: Tensor
    token_C: Tensor

    def with_token(self, x_TC: Tensor) -> Tensor:
        """`short_conv` of the step's tokens, in their dtype."""
        return torch.addcmul(self.mixed_QC, x_TC, self.token_C).to(x_TC.dtype)


def convolved(
    x_TC: Tensor, history: Tensor | WeighedHistory, weight_CW: Tensor, starts: Sequence[int]
) -> Tensor:
    """`short_conv` of either form of history."""
    if isinstance(history, WeighedHistory):
        return history.with_token(x_TC)
    return short_conv(x_TC, history, weight_CW, starts)
