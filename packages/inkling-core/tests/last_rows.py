"""The reference decoder over a long sequence at linear cost: global layers attend from chosen rows.

Right for a model whose only global layer is its last one: what the other rows would have attended
to there, nobody reads but that layer's own residual convolutions, which reach six rows back. Keys,
values and conv rows still come from the whole sequence.

What it is not: a back end, or an approximation. `tests/parity/test_long_positions.py` holds the
rows that it computes to transformers' own modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inkling_core.backend import Backend
from inkling_core.ops import rel_attention
from inkling_core.step import Step

SETTLED = 8
"""Chosen rows whose residual convolutions still reach rows that did not attend."""


@dataclass(frozen=True)
class LastRows:
    """first: position of the first row that attends on a global layer. forgotten: positions below
    it have no keys there (0: the right answer; more: a fault, for controls)."""

    first: int
    forgotten: int = 0

    def backend(self) -> Backend:
        """For `load_decoder`."""
        return Backend("last rows", {"rel_attention": self.attention})

    def attention(
        self,
        q_TNH: Tensor,
        rel_TNR: Tensor,
        keys_PLGH: Tensor,
        values_PLGH: Tensor,
        step: Step,
        window: int | None,
    ) -> Tensor:
        """See `inkling_core.ops.rel_attention`; zeros in rows before the first."""
        skipped = max(0, self.first - step.contexts[0])
        if window is not None or skipped == 0 == self.forgotten:
            return rel_attention(q_TNH, rel_TNR, keys_PLGH, values_PLGH, step, window)
        out_TNH = torch.zeros_like(q_TNH)
        if skipped < q_TNH.shape[0]:
            rows = self._rows(step, skipped)
            q_TNH, rel_TNR = q_TNH[skipped:], rel_TNR[skipped:]
            out_TNH[skipped:] = rel_attention(q_TNH, rel_TNR, keys_PLGH, values_PLGH, rows, window)
        return out_TNH

    def _rows(self, step: Step, skipped: int) -> Step:
        """The step without its first rows, and without the forgotten blocks."""
        lost = self.forgotten // step.block_size
        return replace(
            step,
            positions_T=step.positions_T[skipped:],
            starts=(0, step.starts[1] - skipped),
            contexts=(step.contexts[0] + skipped - lost * step.block_size,),
            block_table_QM=step.block_table_QM[:, lost:],
        )
