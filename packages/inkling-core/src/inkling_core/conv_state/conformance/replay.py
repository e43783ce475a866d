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
        self._inputs: dict[tuple[TokenSequence, int], Tensor] = {}
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
        plan = ConvPlan.from_step(step, self.layout.taps)  # counted; the store makes its own
        handed = self.store.plan(step)
        before = [self.rows(layer).cpu().clone() for layer in range(self.num_layers)]
        returned = []
        for layer in range(self.num_layers):
            wanted_QJC = self._histories(layer, parts)
            for stream in Stream:
                x_TC = self._packed(layer, stream, parts, step)
                given_TC = x_TC.to(self.device, copy=True)
                history_QJC = self.store.exchange(layer, stream, given_TC, handed)
                where = f"{self._where(layer)}, {stream.name}"
                _same(given_TC.cpu(), x_TC, f"{where}: the given inputs were changed")
                channels = self.layout.channels(stream)
                self._check_history(where, parts, history_QJC, wanted_QJC[:, :, channels])
                returned.append((where, history_QJC, history_QJC.cpu().clone()))
        for where, history_QJC, was_QJC in returned:
            _same(history_QJC.cpu(), was_QJC, f"{where}: the history changed later in the step")
        for layer, rows_PJC in enumerate(before):
            self._check_rows(layer, parts, rows_PJC)
        self._count(parts, plan, padding)

    def inputs(self, sequence: TokenSequence, layer: int) -> Tensor:
        """x_SC of all positions and packed streams, in the dtype that the model would hand over."""
        key = (sequence, layer)
        if key not in self._inputs:
            x_SC = sequence.raw_inputs(self.layout, layer)
            x_SC = torch.full_like(x_SC, NAN) if sequence in self.poisoned else x_SC
            self._inputs[key] = x_SC.to(self.x_dtype)
        return self._inputs[key]

    def _packed(self, layer: int, stream: Stream, parts: Sequence[Scheduled], step: Step) -> Tensor:
        """x_TC as a layer would hand it over; NaN in the padding."""
        channels = self.layout.channels(stream)
        x_TC = torch.full((len(step.positions_T), self.layout.widths[stream]), NAN)
        x_TC = x_TC.to(self.x_dtype)
        for part, start in zip(parts, step.starts, strict=False):
            new = slice(part.context, part.context + part.length)
            x_TC[start : start + part.length] = self.inputs(part.sequence, layer)[new, channels]
        return x_TC

    def _histories(self, layer: int, parts: Sequence[Scheduled]) -> Tensor:
        """Packed histories [Q, J, width] by dense recomputation, as the rows' dtype holds them."""
        wanted_QJC = torch.zeros(len(parts), *self.layout.row_shape)
        for q, part in enumerate(parts):
            wanted_QJC[q] = history(
                self.inputs(part.sequence, layer), part.context, self.layout.taps
            )
        return wanted_QJC.to(self.rows(layer).dtype)

    def _check_history(
        self, where: str, parts: Sequence[Scheduled], got_QJC: Tensor, wanted_QJC: Tensor
    ) -> None:
        got, wanted = ((*t.shape, t.dtype) for t in (got_QJC, wanted_QJC))
        assert got == wanted, f"{where}: history is {got}, must be {wanted}"
        wrong_Q = (~_equal(got_QJC.cpu(), wanted_QJC)).flatten(1).any(dim=1)
        wrong = [(parts[q].context, parts[q].table) for q in wrong_Q.nonzero().flatten().tolist()]
        assert not wrong, (
            f"{where}: history differs from the dense recomputation for (position, blocks) {wrong}"
        )

    def _check_rows(self, layer: int, parts: Sequence[Scheduled], before_PJC: Tensor) -> None:
        wanted_PJC = before_PJC
        for part in parts:
            x_SC = self.inputs(part.sequence, layer)
            end = part.context + part.length
            for index in range(part.context // self.block_size, -(-end // self.block_size)):
                newest = min((index + 1) * self.block_size, end)
                wanted_PJC[part.table[index]] = history(x_SC, newest, self.layout.taps)
        wrong_P = (~_equal(self.rows(layer).cpu(), wanted_PJC)).flatten(1).any(dim=1)
        wrong_P[NULL_BLOCK] = False  # absorbs padding, holds anything
        blocks = wrong_P.nonzero().flatten().tolist()
        assert not blocks, (
            f"{self._where(layer)}: rows of blocks {blocks} differ from the dense recomputation"
        )

    def _where(self, layer: int) -> str:
        return f"step {self.counts['steps']}, layer {layer}"

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
