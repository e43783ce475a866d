"""A conv store over plain tensors, one per layer: the reference, and what CPU serving uses.

    rows[layer]: [num_blocks, J, width], any strides, float32 or bfloat16, on any device

The same body serves tensors of its own (`allocate`) and tensors that an engine owns, such as views
into its pages. An exchange is one or two gathers and one or two scattered writes per stream; its
cost grows with requests and touched blocks, never with the context.

Dtype of the rows: the model's. Raw inputs have that dtype, so the rows lose nothing, and in bf16
they cost half of float32. Narrower rows are possible, not advised: bf16 rows under a float32 model
erred by up to 0.016 in outputs of standard deviation 1.39 (1.1 %; unit normal inputs, 1,100
positions in chunks of 1 to 1000, weights of standard deviation 0.5; precision.py measures it).

What it is not: the rules (protocol.py) or the decision which block is whose (the engine's).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.protocol import ConvPlan, RowReads, RowWrites
from inkling_core.step import Step


class TensorConvStore:
    """ConvStore over `rows`, which it writes in place.

    Raises ValueError when a layer's tensor is not [num_blocks, J, width] or its dtype or number of
    blocks differs from the first layer's.
    """

    def __init__(self, rows: Sequence[Tensor], layout: ConvLayout) -> None:
        for layer, tensor in enumerate(rows):
            if tensor.dim() != 3 or tuple(tensor.shape[1:]) != layout.row_shape:
                raise ValueError(
                    f"rows of layer {layer} have shape {tuple(tensor.shape)}, must be "
                    f"[num_blocks, {layout.history}, {layout.width}]"
                )
            if (tensor.dtype, len(tensor)) != (rows[0].dtype, len(rows[0])):
                raise ValueError(
                    f"rows of layer {layer} are {len(tensor)} of {tensor.dtype}, layer 0 has "
                    f"{len(rows[0])} of {rows[0].dtype}: all layers share blocks and dtype"
                )
        self.rows = tuple(rows)
        self.layout = layout

    @classmethod
    def allocate(
        cls,
        layout: ConvLayout,
        num_layers: int,
        num_blocks: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> TensorConvStore:
        """A store with tensors of its own, the null block among `num_blocks`.

        Rows start as NaN: no rule lets an unwritten row be read, and a store that did so would
        show it at once instead of answering a little wrong.
        """
        shape = (num_blocks, *layout.row_shape)
        rows = [
            torch.full(shape, float("nan"), dtype=dtype, device=device) for _ in range(num_layers)
        ]
        return cls(rows, layout)

    def plan(self, step: Step) -> ConvPlan:
        """See ConvStore.plan."""
        return ConvPlan.from_step(step, self.layout.taps)

    def exchange(self, layer: int, stream: Stream, x_TC: Tensor, plan: ConvPlan) -> Tensor:
        """See ConvStore.exchange."""
        self._check(stream, x_TC, plan)
        rows_PJC = self.rows[layer][:, :, self.layout.channels(stream, x_TC.shape[1])]
        history_QJC = rows_PJC.new_zeros(plan.num_requests, plan.history, x_TC.shape[1])
        _read(rows_PJC, plan.early_reads, history_QJC)
        _write(rows_PJC, plan.early_writes, x_TC, history_QJC)
        _read(rows_PJC, plan.late_reads, history_QJC)
        _write(rows_PJC, plan.late_writes, x_TC, history_QJC)
        return history_QJC

    def _check(self, stream: Stream, x_TC: Tensor, plan: ConvPlan) -> None:
        width = self.layout.widths[stream]
        # K and V are narrower on a layer with fewer KV heads than the one that sets the width.
        least = 1 if stream in (Stream.K, Stream.V) else width
        fits = x_TC.dim() == 2 and least <= x_TC.shape[1] <= width
        if not fits or x_TC.shape[0] < plan.num_tokens:
            raise ValueError(
                f"x of stream {stream.name} has shape {tuple(x_TC.shape)}, must be [T, {width}] "
                f"with T >= {plan.num_tokens}"
            )
        if plan.history != self.layout.history:
            raise ValueError(
                f"plan is for {plan.history + 1} taps, the store's rows for {self.layout.taps}"
            )


# Most steps leave one or two of the four phases empty; an empty gather or scatter costs its calls.


def _read(rows_PJC: Tensor, reads: RowReads, history_QJC: Tensor) -> None:
    if len(reads):
        history_QJC[reads.requests_P] = rows_PJC[reads.blocks_P]


def _write(rows_PJC: Tensor, writes: RowWrites, x_TC: Tensor, history_QJC: Tensor) -> None:
    if len(writes):
        rows_PJC[writes.blocks_R] = writes.contents(x_TC, history_QJC)
