"""What the dtype of the rows costs: measured on chunked input, against rows that keep every bit.

A convolution's raw inputs have the model's dtype (the projections and block outputs are cast back
before they reach it), so rows of that dtype lose nothing at all; narrower rows round each history
entry once. Convolution is linear, so the error of its outputs is the convolution of the history's
error:

    e[t, c] = sum_w weight[c, w] * (row - exact)[t - (W - 1) + w, c],   t < J after a chunk start

Outputs further than J - 1 positions from a chunk start never see a row.

What it is not: a model-level tolerance (parity tests own those).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.memory import TensorConvStore
from inkling_core.conv_state.protocol import ConvPlan
from inkling_core.step import Step


@dataclass(frozen=True)
class RowError:
    """Worst absolute errors over all chunk starts, and the spread of what they are errors of."""

    history: float  # of a history entry
    output: float  # of a convolution output
    output_std: float  # standard deviation of the exact outputs

    @property
    def relative(self) -> float:
        """Worst output error in standard deviations of the output."""
        return self.output / self.output_std


def measure_row_error(
    x_TC: Tensor, weight_CW: Tensor, row_dtype: torch.dtype, chunk: int, block_size: int = 128
) -> RowError:
    """Prefill `x_TC` in chunks through rows of `row_dtype` and compare with the exact inputs.

    x_TC: raw inputs of one sequence in the model's dtype. weight_CW: depthwise taps, float32.
    """
    taps, channels = weight_CW.shape[1], x_TC.shape[1]
    layout = ConvLayout(taps, (channels, 1, 1, 1))
    table = range(1, 2 + x_TC.shape[0] // block_size)
    store = TensorConvStore.allocate(layout, 1, len(table) + 1, row_dtype)
    padded_TC = torch.cat([x_TC.new_zeros(layout.history, channels), x_TC]).float()
    worst_history = worst_output = 0.0
    for start in range(0, x_TC.shape[0], chunk):
        new_TC = x_TC[start : start + chunk]
        step = Step.single(len(new_TC), start, table, block_size)
        rows_JC = store.exchange(0, Stream.K, new_TC, ConvPlan.from_step(step, taps))[0]
        error_JC = rows_JC.float() - padded_TC[start : start + layout.history]
        reached_JC = torch.cat([error_JC, torch.zeros_like(error_JC)])[: len(new_TC) + taps - 1]
        output_TC = depthwise(reached_JC, weight_CW)
        worst_history = max(worst_history, error_JC.abs().max().item())
        worst_output = max(worst_output, output_TC.abs().max().item())
    exact_TC = padded_TC[layout.history :] + depthwise(padded_TC, weight_CW)
    return RowError(worst_history, worst_output, exact_TC.std().item())


def depthwise(x_TC: Tensor, weight_CW: Tensor) -> Tensor:
    """[T - W + 1, C]: the convolution proper, without residual, where all taps have an input."""
    return (x_TC.unfold(0, weight_CW.shape[1], 1) * weight_CW).sum(dim=-1)
