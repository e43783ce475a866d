"""Drive a store through steps and hold every history and every row to the dense recomputation.

Comparison is bit for bit: a store moves inputs, it computes nothing. After a step each touched
block's row must hold the inputs up to its newest position, every other row what it held before,
and the histories handed out during the step must still be what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from inkling_core.conv_state.conformance.engine import Scheduled
from inkling_core.conv_state.conformance.sequences import TokenSequence, history
from inkling_core.conv_state.layout import ConvLayout, Stream
from inkling_core.conv_state.protocol import ConvPlan, ConvStore
from inkling_core.step import NULL_BLOCK, Step

NAN = float("nan")


class Replay:
    """One store under test, its rows poisoned with NaN at the start (the null block's may be not).

    rows: layer -> the packed rows [num_blocks, J, width] as they are now.
    poisoned: sequences whose every raw input is NaN.
    `counts` tells how many steps, edge reads, same-step hits and so on were gone through.
    """

    def __init__(
        self,
        store: ConvStore,
        rows: Callable[[int], Tensor],
        layout: ConvLayout,
        num_layers: int,
        block_size: int,
        *,
        x_dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.store, self.layout, self.block_size = store, layout, block_size
        self.num_layers, self.x_dtype, self.device = num_layers, x_dtype, device
        self.poisoned: set[TokenSequence] = set()
        self.counts: Counter[str] = Counter()
        self.rows = rows
        self._inputs: dict[tuple[TokenSequence, int, Stream], Tensor] = {}
        for layer in range(num_layers):
            real = rows(layer)[NULL_BLOCK + 1 :]
            assert real.isnan().all(), f"rows of layer {layer} must be NaN before the first step"

    def step(self, parts: Sequence[Scheduled], padding: int = 0) -> None:
        """Run one step, in the packing order given, followed by `padding` poisoned tokens."""
        lengths = [part.length for part in parts]
        step = Step.build(
            lengths,
            [part.context for part in parts],
            [part.table for part in parts],
            self.block_size,
            padded_to=sum(lengths) + padding,
            device=self.device,
        )
        plan = ConvPlan.from_step(step, self.layout.taps)
        before = [self.rows(layer).cpu().clone() for layer in range(self.num_layers)]
        returned = []
        for layer in range(self.num_layers):
            for stream in Stream:
                returned.append((layer, stream, self._exchange(layer, stream, parts, plan, step)))
        for layer, stream, history_QJC in returned:
            self._check_history(layer, stream, parts, history_QJC, "after the whole step")
        for layer, rows_BJC in enumerate(before):
            self._check_rows(layer, parts, rows_BJC)
        self._count(parts, plan, padding)

    def inputs(self, sequence: TokenSequence, layer: int, stream: Stream) -> Tensor:
        """x_PC of all positions, in the dtype that the model would hand over."""
        key = (sequence, layer, stream)
        if key not in self._inputs:
            x_PC = sequence.raw_inputs(self.layout, layer, stream)
            x_PC = torch.full_like(x_PC, NAN) if sequence in self.poisoned else x_PC
            self._inputs[key] = x_PC.to(self.x_dtype)
        return self._inputs[key]

    def _exchange(
        self, layer: int, stream: Stream, parts: Sequence[Scheduled], plan: ConvPlan, step: Step
    ) -> Tensor:
        x_TC = torch.full((len(step.positions_T), self.layout.widths[stream]), NAN)
        x_TC = x_TC.to(self.x_dtype)
        for part, start in zip(parts, step.starts, strict=False):
            new = slice(part.context, part.context + part.length)
            x_TC[start : start + part.length] = self.inputs(part.sequence, layer, stream)[new]
        given_TC = x_TC.to(self.device, copy=True)
        history_QJC = self.store.exchange(layer, stream, given_TC, plan)
        _same(given_TC.cpu(), x_TC, f"layer {layer} {stream.name}: the given inputs were changed")
        self._check_history(layer, stream, parts, history_QJC, "when returned")
        return history_QJC

    def _check_history(
        self, layer: int, stream: Stream, parts: Sequence[Scheduled], got_QJC: Tensor, when: str
    ) -> None:
        shape = (len(parts), self.layout.history, self.layout.widths[stream])
        assert tuple(got_QJC.shape) == shape, f"history is {tuple(got_QJC.shape)}, must be {shape}"
        dtype = self.rows(layer).dtype
        assert got_QJC.dtype == dtype, f"history is {got_QJC.dtype}, the rows are {dtype}"
        for got_JC, part in zip(got_QJC.cpu(), parts, strict=True):
            wanted_JC = history(
                self.inputs(part.sequence, layer, stream).float(), part.context, self.layout.taps
            )
            what = f"history of {stream.name} at position {part.context} {when}"
            _same(got_JC, wanted_JC.to(got_JC.dtype), self._where(layer, part, what))

    def _check_rows(self, layer: int, parts: Sequence[Scheduled], before_BJC: Tensor) -> None:
        wanted_BJC = before_BJC
        for part in parts:
            end = part.context + part.length
            for index in range(part.context // self.block_size, -(-end // self.block_size)):
                newest = min((index + 1) * self.block_size, end)
                for stream in Stream:
                    x_PC = self.inputs(part.sequence, layer, stream).float()
                    wanted_JC = history(x_PC, newest, self.layout.taps)
                    channels = self.layout.channels(stream)
                    wanted_BJC[part.table[index], :, channels] = wanted_JC.to(wanted_BJC.dtype)
        wrong_B = (~_equal(self.rows(layer).cpu(), wanted_BJC)).flatten(1).any(dim=1)
        wrong_B[NULL_BLOCK] = False  # absorbs padding, holds anything
        where = f"step {self.counts['steps']}, layer {layer}"
        blocks = wrong_B.nonzero().flatten().tolist()
        assert not blocks, f"{where}: rows of blocks {blocks} differ from the dense recomputation"

    def _where(self, layer: int, part: Scheduled, what: str) -> str:
        return (
            f"step {self.counts['steps']}, layer {layer}, blocks {part.table}: {what} differs "
            "from the dense recomputation"
        )

    def _count(self, parts: Sequence[Scheduled], plan: ConvPlan, padding: int) -> None:
        self.counts["steps"] += 1
        self.counts["tokens"] += sum(part.length for part in parts)
        self.counts["padding"] += padding
        self.counts["edge starts"] += len(plan.late_reads)
        self.counts["late rows"] += len(plan.late_writes)
        depths = hit_depths(parts, self.block_size)
        self.counts["same-step hits"] += sum(depth > 0 for depth in depths)
        self.counts["chained hits"] += sum(depth > 1 for depth in depths)
        self.counts["same-step steps"] += plan.reads_within_step


def hit_depths(parts: Sequence[Scheduled], block_size: int) -> list[int]:
    """Per part: 0 when the block before its start was there already, 1 when another part of the
    same step fills it, 2 when that one in turn starts after a block filled in the step, ..."""
    filler = {}
    for part in parts:
        first, last = part.context // block_size, (part.context + part.length - 1) // block_size
        filler.update((block, part) for block in part.table[first : last + 1])

    def depth(part: Scheduled) -> int:
        if not part.context or part.context % block_size:
            return 0
        other = filler.get(part.table[part.context // block_size - 1])
        return 0 if other is None else 1 + depth(other)

    return [depth(part) for part in parts]


def _equal(got: Tensor, wanted: Tensor) -> Tensor:
    return (got == wanted) | (got.isnan() & wanted.isnan())


def _same(got: Tensor, wanted: Tensor, message: str) -> None:
    equal = _equal(got, wanted)
    assert equal.all(), f"{message}: {int((~equal).sum())} of {equal.numel()} values"
