"""The conv-snapshot contract: which rows a step reads and writes, and in which order.

One row per attention block and layer. Row b holds the raw convolution inputs of the last J
positions processed up to the newest position in block b, oldest first, zeros before position 0.
So rows are allotted, shared, freed and reused exactly as KV blocks are, by the engine that already
does that; a prefix hit finds the history it needs beside the keys it reuses.

Rules for a step in which a request brings positions n .. e-1 (n = its context):

R1  n = 0: the history is zeros. No row is read: the block may have belonged to anyone.
R2  n > 0: the history is the row of the block that holds n-1.
R3  Every block that holds one of n .. e-1 gets its row written, with the J inputs up to the newest
    of them, which may reach back into the history.
R4  n in mid-block: R2 reads its own block's row, which R3 overwrites. It reads BEFORE the writes.
R5  n at a block edge: R2 reads the block before. Engines register a block in the prefix cache when
    they allot it, not when it is filled, so another request may fill that very block in this very
    step. It reads AFTER the writes.
R6  Padding tokens belong to no request: they may write row 0, the null block's, and nothing else,
    and what they carry (NaN too) reaches no row of a real block and no history.
R7  Blocks that the step does not touch keep their rows, bit for bit.

Why R4 and R5 can both be met, whatever the requests do to each other: in a step, only an edge
starter (R5) can read a row that somebody else writes, and the block that it reads is full.

  * A full block's row never depends on an edge read. Its newest position closes the block. Its
    writer either started in mid-block (its history is an early read), or at or before that block's
    first position; then the J inputs lie inside the block, because block_size >= J, and all come
    from the step's own tokens.
  * An edge starter's row depends on its edge read only when fewer than J of its tokens precede the
    end of that row, hence only when it brings fewer than J tokens; that row is partial, so nobody
    else may read it in this step.

  Hence four phases without cycles, however long a chain of same-step hits is:
      early reads (R4) -> early writes (all but those rows) -> late reads (R5) -> late writes
  With block_size < J a full row would reach through a whole block into the one before and hits
  could chain; such sizes are refused.

What it is not: an allocator (the engine's) or the convolution (ops.short_conv).

Notes for implementers. The index tensors depend on the step alone, so a plan is made once per step
and used by every layer and stream. A layer's inputs exist only when that layer runs, so late reads
cannot move before its writes; but when `reads_within_step` is False no late read names a row that
this step writes, and every layer's history may be gathered up front in one go (decode steps are of
this kind). `exchange` is called once per layer and stream of a step, layers rising and streams in
their order, so that an implementation may gather at the first call and write at the last. A back
end with static shapes pads the plan's index tensors with block 0 (R6 allows those writes) and
throws away what it reads there.

In this module's suffixes P counts the rows that are read and R the rows that are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from inkling_core.conv_state.layout import Stream
from inkling_core.step import NULL_BLOCK, Step


@dataclass(frozen=True, eq=False)
class RowReads:
    """Request requests_P[i] takes the row of block blocks_P[i] for its history (int64 [P])."""

    requests_P: Tensor
    blocks_P: Tensor

    def __len__(self) -> int:
        return self.blocks_P.shape[0]


@dataclass(frozen=True, eq=False)
class RowWrites:
    """What R rows become: entry j of the row of block blocks_R[r] is the input of one position.

    from_past_RJ: bool [R, J], the position was processed before this step.
    tokens_RJ: int64 [R, J], its packed token where it was not (else any token of the request).
    past_RJ: int64 [R, J], its place in the history viewed as [Q * J, C] where it was.
    """

    blocks_R: Tensor
    tokens_RJ: Tensor
    past_RJ: Tensor
    from_past_RJ: Tensor

    def __len__(self) -> int:
        return self.blocks_R.shape[0]

    def contents(self, x_TC: Tensor, history_QJC: Tensor) -> Tensor:
        """rows_RJC in the history's dtype. A selection, not a sum: NaN left out stays out."""
        fresh_RJC = x_TC[self.tokens_RJ].to(history_QJC.dtype)
        past_RJC = history_QJC.flatten(0, 1)[self.past_RJ]
        return torch.where(self.from_past_RJ[..., None], past_RJC, fresh_RJC)


@dataclass(frozen=True, eq=False)
class ConvPlan:
    """The four phases of a step as index tensors on the step's device, for all layers and streams.

    Requests in neither group of reads are at position 0 and start from zeros (R1).
    """

    history: int  # J
    num_requests: int  # Q
    num_tokens: int  # packed tokens without padding
    early_reads: RowReads
    early_writes: RowWrites
    late_reads: RowReads
    late_writes: RowWrites

    @classmethod
    def from_step(cls, step: Step, taps: int) -> ConvPlan:
        """Plan a step for kernels of `taps` taps in O(Q + touched blocks), without waiting for an
        accelerator (so only on a CPU can block ids be checked).

        Raises ValueError for block_size < taps - 1 and, on a CPU, for a block id below 1 and for a
        block that two requests of the step would write.
        """
        history = taps - 1
        if step.block_size < history:
            raise ValueError(
                f"block_size is {step.block_size}, must be >= {history} for {taps} taps: a full "
                "block's row must lie inside its own block, or same-step prefix hits would chain"
            )
        spans = _Spans.of(step)
        offsets_RJ = spans.offsets(history)
        late_R = spans.at_edge_Q[spans.owner_R] & (offsets_RJ < 0).any(dim=1)
        plan = cls(
            history=history,
            num_requests=step.num_requests,
            num_tokens=step.num_tokens,
            early_reads=_reads(step, spans, spans.in_mid_Q),
            early_writes=_writes(step, spans, offsets_RJ, ~late_R),
            late_reads=_reads(step, spans, spans.at_edge_Q),
            late_writes=_writes(step, spans, offsets_RJ, late_R),
        )
        _check_single_writers(torch.cat([plan.early_writes.blocks_R, plan.late_writes.blocks_R]))
        return plan

    @cached_property
    def reads_within_step(self) -> bool:
        """Whether a late read names a row that this step writes: a prefix hit on a block that is
        being filled. Waits for the device when first asked."""
        return bool(torch.isin(self.late_reads.blocks_P, self.early_writes.blocks_R).any())


class ConvStore(Protocol):
    """Keeper of the rows of one tensor-parallel rank. Rules R1 to R7 above bind it."""

    def plan(self, step: Any) -> Any:
        """What every `exchange` of a step is handed: a ConvPlan, or the index tensors that the
        store makes of its engine's own kind of step. Called once per step.

        Raises ValueError as `ConvPlan.from_step` does.
        """
        ...

    def exchange(self, layer: int, stream: Stream, x_TC: Tensor, plan: Any) -> Any:
        """Write the rows that this step touches; return the history that each request starts from.

        x_TC: [T, C] raw inputs of `stream` in any float dtype; rows past the step's tokens are
        padding. Left unchanged. plan: what `plan(step)` returned.
        Returns history_QJC [Q, J, C], oldest first, in the store's dtype. It is the caller's: later
        exchanges do not change it. A store may hand the same out in a form of its own, which
        only the joined steps of its back end read (`inkling_core.joined`).
        Raises ValueError when C is not the stream's width or x_TC is too short.
        """
        ...


@dataclass(frozen=True, eq=False)
class _Spans:
    """A step's requests and touched blocks as host tensors: the arithmetic needs no device."""

    first_Q: Tensor  # n, absolute position of the first new token
    start_Q: Tensor  # its packed index
    owner_R: Tensor  # the request that touches row r
    newest_R: Tensor  # newest absolute position that it leaves in that block
    at_edge_Q: Tensor  # n > 0 opens a block
    in_mid_Q: Tensor  # n lies inside a block

    @classmethod
    def of(cls, step: Step) -> _Spans:
        size = step.block_size
        first_Q = torch.tensor(step.contexts, dtype=torch.int64)
        end_Q = first_Q + torch.tensor(step.lengths, dtype=torch.int64)
        first_block_Q = first_Q // size
        touched_Q = (end_Q - 1) // size - first_block_Q + 1
        owner_R = torch.repeat_interleave(touched_Q)
        # Row r is the (r - rows of earlier requests)-th block that its owner touches.
        rows_before_Q = touched_Q.cumsum(0) - touched_Q
        block_R = first_block_Q[owner_R] + torch.arange(len(owner_R)) - rows_before_Q[owner_R]
        return cls(
            first_Q=first_Q,
            start_Q=torch.tensor(step.starts[:-1], dtype=torch.int64),
            owner_R=owner_R,
            newest_R=torch.minimum((block_R + 1) * size, end_Q[owner_R]) - 1,
            at_edge_Q=(first_Q % size == 0) & (first_Q > 0),
            in_mid_Q=first_Q % size != 0,
        )

    def offsets(self, history: int) -> Tensor:
        """int64 [R, J]: where each entry of each row lies, counted from its request's first new
        token. Negative: processed before this step, -1 being the newest entry of the history."""
        newest_R1 = (self.newest_R - self.first_Q[self.owner_R])[:, None]
        return newest_R1 + torch.arange(1 - history, 1)


def _reads(step: Step, spans: _Spans, chosen_Q: Tensor) -> RowReads:
    requests_P = chosen_Q.nonzero().flatten()
    blocks_P = _blocks(step, requests_P, spans.first_Q[requests_P] - 1)
    return RowReads(requests_P.to(blocks_P.device), blocks_P)


def _writes(step: Step, spans: _Spans, offsets_RJ: Tensor, chosen_R: Tensor) -> RowWrites:
    owner_R, offsets_RJ = spans.owner_R[chosen_R], offsets_RJ[chosen_R]
    history = offsets_RJ.shape[1]
    blocks_R = _blocks(step, owner_R, spans.newest_R[chosen_R])
    # Both sources get an index that is always valid, of the same request; from_past_RJ chooses.
    tokens_RJ = spans.start_Q[owner_R][:, None] + offsets_RJ.clamp(min=0)
    past_RJ = (owner_R[:, None] + 1) * history + offsets_RJ.clamp(max=-1)
    device = blocks_R.device
    return RowWrites(
        blocks_R, tokens_RJ.to(device), past_RJ.to(device), (offsets_RJ < 0).to(device)
    )


def _blocks(step: Step, requests_P: Tensor, positions_P: Tensor) -> Tensor:
    """int64 [P]: the block that holds a position of a request, on the table's device."""
    device = step.block_table_QM.device
    columns_P = positions_P // step.block_size
    blocks_P = step.block_table_QM[requests_P.to(device), columns_P.to(device)]
    if device.type == "cpu":
        for i in (blocks_P <= NULL_BLOCK).nonzero().flatten().tolist():
            raise ValueError(
                f"position {positions_P[i]} of request {requests_P[i]} lies in block "
                f"{blocks_P[i]}; ids start at {NULL_BLOCK + 1}: allot its blocks before the step"
            )
    return blocks_P


def _check_single_writers(blocks_R: Tensor) -> None:
    if blocks_R.device.type == "cpu":
        ids, counts = blocks_R.unique(return_counts=True)
        if len(ids) != len(blocks_R):
            raise ValueError(
                f"blocks {ids[counts > 1].tolist()} are written by two requests of one step: only "
                "full blocks may be shared, give each request a block of its own to write"
            )
