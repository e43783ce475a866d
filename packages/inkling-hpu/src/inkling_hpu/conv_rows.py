"""Conv rows on the device: one row per block id, for steps of vllm-gaudi's kind.

    rows[layer]   [pad_block + 2, J, width]
    row b         history after the newest position processed in block b  (b <= pad_block)
    pad_block     absorbs what padding writes; nothing reads it as a history
    zero row      pad_block + 1, zeros for ever: what a request at position 0 starts from (R1)

How the rules of `inkling_core.conv_state.protocol` are met. vllm-gaudi runs the requests of a step
as separate forwards: its prefills one by one (or several without context together), then all
decodes. Within one forward no request reads a row that the forward writes for another request:
a prefill with context is alone, prefills without context read the zero row only, and a decoding
request reads blocks that it owns or that were full before. So each layer gathers all rows first
and writes last (R4 inside a forward), and an edge starter finds its neighbour's row because the
neighbour's forward came earlier (R5), PROVIDED forwards run in scheduling order; the runner
subclass sees to that. A chain of same-step hits is then a chain of forwards.

Persistent inputs. The rows outlive the graph that reads and writes them. A history that is handed
out is a gathered copy, never a view of the rows; a layer's rows are written by one `index_copy_`
whose source is computed from such copies and fresh inputs; nothing else is written in place. So
no reader of a step can see its write. A graph compiler that lets outputs reuse the memory of
persistent inputs must still be told not to (the serving documentation names the setting).

Padding reaches no row of a real block: contents are selected (`torch.where`), never multiplied.

What it is not: the rules (core) or the lists (`builders.conv_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.protocol import RowWrites
from inkling_hpu.builders import zero_row
from inkling_hpu.step import HpuStep


class HpuConvStore:
    """ConvStore over `rows`, per layer `[pad_block + 2, J, width]`, written in place.

    Streams of a layer are exchanged in their order, K first and MLP last, as the protocol says.
    Raises ValueError where a tensor has another shape or the layers differ.
    """

    def __init__(self, rows: Sequence[Tensor], layout: ConvLayout) -> None:
        for layer, tensor in enumerate(rows):
            if tensor.dim() != 3 or tuple(tensor.shape[1:]) != layout.row_shape:
                raise ValueError(
                    f"rows of layer {layer} have shape {tuple(tensor.shape)}, must be "
                    f"[pad_block + 2, {layout.history}, {layout.width}]"
                )
            if tensor.shape != rows[0].shape or tensor.dtype != rows[0].dtype:
                raise ValueError(
                    f"rows of layer {layer} are {tuple(tensor.shape)} {tensor.dtype}, layer 0 has "
                    f"{tuple(rows[0].shape)} {rows[0].dtype}: all layers share blocks and dtype"
                )
        self.rows = tuple(rows)
        self.layout = layout
        self._history_QJC: Tensor | None = None
        self._parts: list[Tensor] = []

    @classmethod
    def allocate(
        cls,
        layout: ConvLayout,
        num_layers: int,
        pad_block: int,
        dtype: torch.dtype,
        device: torch.device | str | None = None,
    ) -> HpuConvStore:
        """Rows of blocks 0 .. pad_block and the zero row, all zeros.

        No rule reads a row before it is written, so what they start as does not matter, but for
        the zero row.
        """
        shape = (zero_row(pad_block) + 1, *layout.row_shape)
        return cls(
            [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)], layout
        )

    def plan(self, step: HpuStep) -> HpuStep:
        """The step is its own plan: it carries the rows, and keeps what is derived from them."""
        return step

    def exchange(self, layer: int, stream: Stream, x_TC: Tensor, plan: HpuStep) -> Tensor:
        """See ConvStore.exchange; `x_TC` is [Q * S, C]."""
        if stream is Stream.K:
            self._history_QJC = self.rows[layer].index_select(0, plan.rows.load_Q)
            self._parts = []
        if self._history_QJC is None or len(self._parts) != stream:
            raise RuntimeError(
                f"layer {layer} exchanged stream {stream.name} after {len(self._parts)} others: "
                "streams come in the order K, V, ATTN, MLP"
            )
        history_QJC = self._history_QJC[:, :, self.layout.channels(stream, x_TC.shape[1])]
        if plan.row_length == 1:
            self._parts.append(x_TC.to(history_QJC.dtype))
        else:
            self._parts.append(_writes(plan, self.layout.history).contents(x_TC, history_QJC))
        if stream is Stream.MLP:
            self._write(layer, plan)
        return history_QJC

    def _write(self, layer: int, step: HpuStep) -> None:
        """One write of the four streams; entries of a layer with fewer heads fill up with zeros."""
        assert self._history_QJC is not None  # exchange() has checked the order
        new = torch.cat(self._filled(), dim=-1)
        if step.row_length == 1:  # one token a row: the history moves up by one
            new = torch.cat([self._history_QJC[:, 1:], new[:, None]], dim=1)
        self.rows[layer].index_copy_(0, step.rows.store_QR.flatten(), new)
        self._history_QJC, self._parts = None, []

    def _filled(self) -> list[Tensor]:
        """The parts, each as wide as its stream's place in a row."""
        filled = []
        for width, part in zip(self.layout.widths, self._parts, strict=True):
            filled.append(part)
            if part.shape[-1] < width:
                filled.append(part.new_zeros(*part.shape[:-1], width - part.shape[-1]))
        return filled


def _writes(step: HpuStep, history: int) -> RowWrites:
    """The rows of a prefill step in the core's words, from tensors alone; R' = Q * R rows."""

    def make() -> RowWrites:
        ends_QR = step.rows.ends_QR
        device = ends_QR.device
        row_Q11 = torch.arange(step.num_rows, device=device)[:, None, None]
        # Entry j of a row that ends after `end` new tokens is new token end - J + j, or, below
        # zero, entry end + j of the history.
        offset_QRJ = ends_QR[:, :, None] + torch.arange(-history, 0, device=device)
        tokens_QRJ = row_Q11 * step.row_length + offset_QRJ.clamp(min=0)
        past_QRJ = (row_Q11 + 1) * history + offset_QRJ.clamp(max=-1)
        return RowWrites(
            step.rows.store_QR.flatten(),
            tokens_QRJ.flatten(0, 1),
            past_QRJ.flatten(0, 1),
            (offset_QRJ < 0).flatten(0, 1),
        )

    return step.once(("conv writes", history), make)
