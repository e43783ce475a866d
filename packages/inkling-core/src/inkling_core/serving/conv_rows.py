"""Conv rows of a layer moved once per step instead of once per stream.

What it is: `TensorConvStore` with a shorter way for the steps that allow it. Where no request
reads a row that this very step writes (every decode step, most prefill steps), the order of reads
and writes is free: all four histories of a layer are gathered at its first exchange, and all four
are written at its last.

    K: gather [Q, J, width]    V, ATTN, MLP: slices of it    MLP: one write of all four

What it is not: the rules (conv_state.protocol). Steps with a hit on a block being filled take the
parent's four phases, stream by stream.
"""

from __future__ import annotations

from torch import Tensor

from inkling_core.conv_state.layout import Stream
from inkling_core.conv_state.memory import TensorConvStore
from inkling_core.conv_state.protocol import ConvPlan


class LayerConvStore(TensorConvStore):
    """ConvStore over `rows`; see `TensorConvStore` for the arguments and errors."""

    _history_QJC: Tensor
    _inputs: list[Tensor]

    def exchange(self, layer: int, stream: Stream, x_TC: Tensor, plan: ConvPlan) -> Tensor:
        """See ConvStore.exchange. Streams of a layer come in their order, as the protocol says."""
        if plan.reads_within_step:
            return super().exchange(layer, stream, x_TC, plan)
        self._check(stream, x_TC, plan)
        if stream is Stream.K:
            self._history_QJC, self._inputs = self._gather(layer, plan), []
        self._inputs.append(x_TC[: plan.num_tokens])
        if stream is Stream.MLP:
            self._write(layer, plan)
        return self._history_QJC[:, :, self.layout.channels(stream, x_TC.shape[1])]

    def _gather(self, layer: int, plan: ConvPlan) -> Tensor:
        """[Q, J, width]: what each request starts from, zeros at position 0."""
        rows_PJC = self.rows[layer]
        reads = [r for r in (plan.early_reads, plan.late_reads) if len(r.blocks_P)]
        if len(reads) == 1 and len(reads[0].blocks_P) == plan.num_requests:
            return rows_PJC.index_select(0, reads[0].blocks_P)
        history_QJC = rows_PJC.new_zeros(plan.num_requests, *self.layout.row_shape)
        for read in reads:
            history_QJC[read.requests_P] = rows_PJC.index_select(0, read.blocks_P)
        return history_QJC

    def _write(self, layer: int, plan: ConvPlan) -> None:
        history_QJC = self._history_QJC
        x_TC = history_QJC.new_zeros(plan.num_tokens, self.layout.width)
        for stream, part_TC in zip(Stream, self._inputs, strict=True):
            x_TC[:, self.layout.channels(stream, part_TC.shape[1])] = part_TC
        for writes in (plan.early_writes, plan.late_writes):
            if len(writes):
                rows_RJC = writes.contents(x_TC, history_QJC)
                self.rows[layer].index_copy_(0, writes.blocks_R, rows_RJC)
        self._inputs = []
