"""Conv rows on the device: one row per block id, for steps of vllm-gaudi's kind.

    rows[run]     [pad_block + 2, J, layers of the run * width], layer after layer
    row b         history after the newest position processed in block b  (b <= pad_block)
    pad_block     absorbs what padding writes; nothing reads it as a history
    zero row      pad_block + 1, zeros for ever: what a request at position 0 starts from (R1)

A run is one layer, or (the conv hoist) all of them: then a step gathers the histories of every
layer and stream in one op before the first layer and writes all rows in one op behind the last, and
a decode step weighs all histories in between (`conv_hoist`). More runs than one are made only to
keep a tensor below MOST_ELEMENTS.

How the rules of `inkling_core.conv_state.protocol` are met. vllm-gaudi runs the requests of a step
as separate forwards: its prefills one by one (or several without context together), then all
decodes. Within one forward no request reads a row that the forward writes for another request:
a prefill with context is alone, prefills without context read the zero row only, and a decoding
request reads blocks that it owns or that were full before. So each run gathers all rows first
and writes last (R4 inside a forward), and an edge starter finds its neighbour's row because the
neighbour's forward came earlier (R5), PROVIDED forwards run in scheduling order; the runner
subclass sees to that. A chain of same-step hits is then a chain of forwards.

Persistent inputs. The rows outlive the graph that reads and writes them. A history that is handed
out is a gathered copy, never a view of the rows; a run's rows are written by one `index_copy_`
whose source is computed from such copies and fresh inputs; nothing else is written in place. So
no reader of a step can see its write. A graph compiler that lets outputs reuse the memory of
persistent inputs must still be told not to (the serving documentation names the setting).

Padding reaches no row of a real block: contents are selected (`torch.where`), never multiplied.

What it is not: the rules (core) or the lists (`builders.conv_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.protocol import RowWrites
from inkling_core.model import Decoder
from inkling_hpu.builders import zero_row
from inkling_hpu.conv_hoist import PackedTaps, WeighedHistory, packed_taps
from inkling_hpu.step import HpuStep
from inkling_hpu.switches import Switches

MOST_ELEMENTS = 2**31 - 1
"""Of one tensor of rows: a kernel may index with int32."""


@dataclass(frozen=True, eq=False)
class Run:
    """Neighbouring layers whose rows lie in one tensor.

    first, count: its layers. rows: [pad_block + 2, J, count * width].
    taps: of all its streams, where a step runs hoisted; None: one layer at a time.
    """

    first: int
    count: int
    rows: Tensor
    taps: PackedTaps | None


@dataclass(eq=False)
class StepRows:
    """A step under way: what was gathered for it and what it will write, run by run.

    step: whose rows. history_QJX, mixed_QX: of the run that is open; `mixed_QX` in hoisted decode
    steps only. parts: new inputs (decode) or new rows (prefill) of its streams so far.
    """

    step: HpuStep
    history_QJX: dict[int, Tensor] = field(default_factory=dict)
    mixed_QX: dict[int, Tensor] = field(default_factory=dict)
    parts: list[Tensor] = field(default_factory=list)


class HpuConvStore:
    """ConvStore over `rows`, per run `[pad_block + 2, J, layers * width]`, written in place.

    rows: of neighbouring runs. taps: of each of them, or None: then a run is one layer.
    Streams of a layer are exchanged in their order, K first and MLP last, layers rising, as the
    protocol says. Raises ValueError where a tensor has another shape or the runs differ.
    """

    def __init__(
        self, rows: Sequence[Tensor], layout: ConvLayout, taps: Sequence[PackedTaps] | None = None
    ) -> None:
        history, width = layout.row_shape
        self._runs: list[Run] = []
        for number, tensor in enumerate(rows):
            count = tensor.shape[-1] // width if taps else 1
            if tensor.dim() != 3 or tuple(tensor.shape[1:]) != (history, count * width):
                raise ValueError(
                    f"rows of run {number} have shape {tuple(tensor.shape)}, must be "
                    f"[pad_block + 2, {history}, {'layers * ' if taps else ''}{width}]"
                )
            if len(tensor) != len(rows[0]) or tensor.dtype != rows[0].dtype:
                raise ValueError(
                    f"rows of run {number} are {tuple(tensor.shape)} {tensor.dtype}, run 0 has "
                    f"{tuple(rows[0].shape)} {rows[0].dtype}: all layers share blocks and dtype"
                )
            run = Run(self.num_layers, count, tensor, taps[number] if taps else None)
            self._runs.append(run)
        self.rows = tuple(rows)
        self.layout = layout
        self._run_of = [n for n, run in enumerate(self._runs) for _ in range(run.count)]

    @classmethod
    def allocate(
        cls,
        layout: ConvLayout,
        num_layers: int,
        pad_block: int,
        dtype: torch.dtype,
        device: torch.device | str | None = None,
        taps_WX: Tensor | None = None,
    ) -> HpuConvStore:
        """Rows of blocks 0 .. pad_block and the zero row, all zeros.

        No rule reads a row before it is written, so what they start as does not matter, but for
        the zero row. taps_WX: `[W, num_layers * width]` of `conv_hoist.packed_taps`, for hoisted
        steps; None: every layer gathers, weighs and writes by itself.
        """
        num_rows, (history, width) = zero_row(pad_block) + 1, layout.row_shape
        together = max(1, MOST_ELEMENTS // (num_rows * history * width))
        counts = [1] * num_layers if taps_WX is None else list(_cut(num_layers, together))
        rows = [
            torch.zeros(num_rows, history, count * width, dtype=dtype, device=device)
            for count in counts
        ]
        if taps_WX is None:
            return cls(rows, layout)
        cut = taps_WX.split([count * width for count in counts], dim=1)
        taps = [PackedTaps(one[:history].contiguous(), one[history] + 1) for one in cut]
        return cls(rows, layout, taps)

    @classmethod
    def of(
        cls,
        decoder: Decoder,
        pad_block: int,
        switches: Switches,
        device: torch.device | str | None = None,
    ) -> HpuConvStore:
        """Rows for a decoder whose weights are loaded; `switches.conv_hoist` says how they lie."""
        layout = ConvLayout.from_config(decoder.config, decoder.tp.size)
        taps_WX = packed_taps(decoder, layout) if switches.conv_hoist else None
        return cls.allocate(
            layout, decoder.config.num_hidden_layers, pad_block, decoder.dtype, device, taps_WX
        )

    @property
    def num_layers(self) -> int:
        return sum(run.count for run in self._runs)

    def layer_rows(self, layer: int) -> Tensor:
        """`[pad_block + 2, J, width]`: a view of the rows of one layer."""
        run = self._runs[self._run_of[layer]]
        return run.rows.unflatten(2, (run.count, self.layout.width))[:, :, layer - run.first]

    def plan(self, step: HpuStep) -> StepRows:
        """The step with its rows; hoisted, the histories of all layers are gathered here."""
        under = StepRows(step)
        for number, run in enumerate(self._runs):
            if run.taps is not None:
                self._gather(number, under)
        return under

    def exchange(
        self, layer: int, stream: Stream, x_TC: Tensor, plan: StepRows
    ) -> Tensor | WeighedHistory:
        """See ConvStore.exchange; `x_TC` is [Q * S, C]. In a hoisted decode step, the history as
        `conv_hoist` takes it."""
        number = self._run_of[layer]
        run = self._runs[number]
        if stream is Stream.K and run.taps is None:
            self._gather(number, plan)
        before = (layer - run.first) * len(Stream)
        if number not in plan.history_QJX or len(plan.parts) != before + stream:
            raise RuntimeError(
                f"layer {layer} exchanged stream {stream.name} after {len(plan.parts) - before} "
                "others: streams come in the order K, V, ATTN, MLP, layers rising"
            )
        own = self._channels(layer - run.first, stream, x_TC.shape[1], plan)
        history_QJC = plan.history_QJX[number][:, :, own]
        if plan.step.row_length == 1:
            plan.parts.append(x_TC.to(history_QJC.dtype))
        else:
            writes = _writes(plan.step, self.layout.history)
            plan.parts.append(writes.contents(x_TC, history_QJC))
        found: Tensor | WeighedHistory = history_QJC
        if run.taps is not None and number in plan.mixed_QX:
            mixed_QC, token_C = plan.mixed_QX[number][:, own], run.taps.token_X[own]
            found = WeighedHistory(history_QJC, mixed_QC, token_C)
        if len(plan.parts) == run.count * len(Stream):
            self._write(number, run, plan)
        return found

    def _gather(self, number: int, plan: StepRows) -> None:
        """The histories of a run; hoisted and one token a row, weighed too."""
        run = self._runs[number]
        history_QJX = run.rows.index_select(0, plan.step.rows.load_Q)
        plan.history_QJX[number] = history_QJX
        if run.taps is not None and plan.step.row_length == 1:
            plan.mixed_QX[number] = (history_QJX * run.taps.old_JX).sum(1)  # float32 by promotion

    def _channels(self, index: int, stream: Stream, width: int, plan: StepRows) -> slice:
        """Where a stream of the run's layer `index` lies: values follow keys at once, so that the
        two are neighbours on a layer with fewer heads too."""
        offset = self.layout.offsets[stream]
        if stream is Stream.V:
            offset = plan.parts[-1].shape[-1]
        first = index * self.layout.width + offset
        return slice(first, first + width)

    def _write(self, number: int, run: Run, plan: StepRows) -> None:
        """One write of all streams of a run."""
        step, history_QJX = plan.step, plan.history_QJX.pop(number)
        parts = list(self._filled(plan.parts))
        if step.row_length == 1:  # one token a row: the history moves up by one
            old = history_QJX[:, 1:].flatten(1)
            new = torch.cat([old, *parts], dim=1).view(history_QJX.shape)
        else:
            new = torch.cat(parts, dim=-1)
        run.rows.index_copy_(0, step.rows.store_QR.flatten(), new)
        plan.parts = []

    def _filled(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """The parts; zeros behind the values of a layer with fewer heads."""
        zeros: dict[int, Tensor] = {}
        room = sum(self.layout.widths[:2])
        for place, part in enumerate(parts):
            yield part
            if place % len(Stream) == Stream.V:
                spare = room - parts[place - 1].shape[-1] - part.shape[-1]
                if spare and spare not in zeros:
                    zeros[spare] = part.new_zeros(*part.shape[:-1], spare)
                if spare:
                    yield zeros[spare]


def _cut(total: int, most: int) -> Iterator[int]:
    """`total` in pieces of `most`, the last one smaller."""
    for first in range(0, total, most):
        yield min(most, total - first)


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
