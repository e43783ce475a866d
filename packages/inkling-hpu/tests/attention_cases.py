"""Requests with random keys, values and queries, as a core `Step` and as an `HpuStep`, so that the
law and the back end answer the same question. Slots that nobody wrote hold large finite numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core import ops as law
from inkling_core.parity.compare import assert_within
from inkling_core.parity.tolerances import tolerance
from inkling_core.step import Step
from inkling_hpu import ops
from inkling_hpu.builders import build_decode, build_prefill
from inkling_hpu.step import HpuStep
from inkling_hpu.switches import DEFAULTS, Switches

N, G, H = 4, 2, 16
GARBAGE = 37.0


@dataclass(frozen=True, eq=False)
class Case:
    """Packed by the law's rules (no padding) and in rows by ours; same values."""

    lengths: list[int]
    step: Step
    q_TNH: Tensor
    rel_TNR: Tensor
    keys_PLGH: Tensor
    values_PLGH: Tensor

    def expected(self, window: int | None) -> Tensor:
        """`[T, N, H]` by the law."""
        tensors = (self.q_TNH, self.rel_TNR, self.keys_PLGH, self.values_PLGH)
        return law.rel_attention(*tensors, self.step, window)

    def answer(self, step: HpuStep, window: int | None) -> Tensor:
        """`[T, N, H]` by the back end, padding cut away; padding holds garbage in queries too."""
        out = ops.rel_attention(
            self._rows(self.q_TNH, step),
            self._rows(self.rel_TNR, step),
            self.keys_PLGH,
            self.values_PLGH,
            step,
            window,
        )
        assert torch.isfinite(out).all(), "padding rows stay finite"
        rows = out.unflatten(0, (step.num_rows, -1))
        return torch.cat([rows[q, :length] for q, length in enumerate(self.lengths)])

    def check(self, step: HpuStep, window: int | None) -> None:
        """The back end answers what the law answers, within the table's limit."""
        limit = tolerance("rel_attention", self.q_TNH.dtype)
        what = f"contexts {self.step.contexts}, lengths {self.lengths}, window {window}"
        assert_within(self.answer(step, window), self.expected(window), limit, what)

    def _rows(self, x: Tensor, step: HpuStep) -> Tensor:
        rows = x.new_full((step.num_rows, step.row_length, *x.shape[1:]), 3.0)
        for q, part in enumerate(x.split(self.lengths)):
            rows[q, : len(part)] = part
        return rows.flatten(0, 1)


def make_case(
    lengths: Sequence[int],
    contexts: Sequence[int],
    tables: Sequence[Sequence[int]],
    block_size: int,
    num_blocks: int,
    extent: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """Keys and values at every position that some request has, garbage elsewhere (pad block too,
    which is block `num_blocks`)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    shape = (num_blocks + 1, block_size, G, H)
    keys, values = torch.full(shape, GARBAGE, dtype=dtype), torch.full(shape, GARBAGE, dtype=dtype)
    for length, context, table in zip(lengths, contexts, tables, strict=True):
        positions = torch.arange(context + length)
        blocks = torch.tensor(table)[positions // block_size]
        for paged in (keys, values):
            paged[blocks, positions % block_size] = normal(len(positions), G, H)
    total = sum(lengths)
    step = Step.build(lengths, contexts, tables, block_size)
    return Case(
        list(lengths), step, 4 * normal(total, N, H), normal(total, N, extent), keys, values
    )


def scattered(needs: Sequence[int], seed: int = 0) -> tuple[list[list[int]], int]:
    """Block tables with ids in no order, and the pool size that they need (null block included)."""
    total = sum(needs)
    ids = (torch.randperm(total, generator=torch.Generator().manual_seed(seed)) + 1).tolist()
    tables = []
    for need in needs:
        tables.append(ids[:need])
        ids = ids[need:]
    return tables, total + 1


def prefill_step(
    case: Case,
    pad_block: int,
    *,
    spare: int = 3,
    far: int = 0,
    reach: int = 0,
    switches: Switches = DEFAULTS,
) -> HpuStep:
    """The case as a prefill step with `spare` padding in every dimension; no padding row where
    `far` blocks are asked for, since a padding row has none."""
    step, size = case.step, case.step.block_size
    contexts = list(step.contexts)
    most = max(-(-context // size) for context in contexts)
    return build_prefill(
        case.lengths,
        contexts,
        step.block_table_QM.tolist(),
        num_rows=len(contexts) + (spare > 0 and not far),
        row_length=max(case.lengths) + spare,
        num_far_blocks=far,
        reach=reach,
        num_context_blocks=most + spare if most else 0,
        block_size=size,
        pad_block=pad_block,
        switches=switches,
    )


def decode_step(
    case: Case, pad_block: int, window: int, *, spare: int = 3, switches: Switches = DEFAULTS
) -> HpuStep:
    """The case as a decode step with `spare` padding rows and list entries."""
    step, size = case.step, case.step.block_size
    listed = sum(context // size + 1 for context in step.contexts)
    return build_decode(
        list(step.contexts),
        step.block_table_QM.tolist(),
        num_rows=len(step.contexts) + spare,
        num_blocks=listed + spare,
        window=window,
        block_size=size,
        pad_block=pad_block,
        switches=switches,
    )
