"""One padded, rectangular step: what a Gaudi graph is given, told without vllm_gaudi's words.

A graph is compiled per shape, so a step has Q rows of S positions each (packed T = Q * S) and
everything that differs between two steps of one shape is a tensor. Two kinds:

    prefill   S > 1 (or one new token in a row of S); keys = far blocks | other blocks | new tokens
    decode    S = 1; keys = flat list of blocks of all requests, with the request that owns each

Row q brings `lengths_Q[q] <= S` new tokens, at the front of its row; the rest of the row is
padding, and so are rows beyond the last request. Padding is computed like anything else: it reads
finite values only, and it writes the pad block's slots and the pad row of the conv rows.

`HpuStep` stands where the core's `Step` stands: the decoder reads `positions_T` and `starts`, the
caches and ops of this package read the rest. `once` is the step hoist.

What it is not: how the tensors are made from an engine's lists (`builders`), or a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from inkling_hpu.switches import DEFAULTS, Switches

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class ConvRows:
    """Conv rows that a step reads and writes; all int64. Row ids are block ids.

    load_Q: [Q] row that holds the history of each row: the block of its last processed position;
        the zero row where nothing was processed, and for padding.
    store_QR: [Q, R] row of every block that the new tokens touch; the pad row where there are
        fewer than R. R = 1 in a decode step.
    ends_QR: [Q, R] new tokens of the row up to and including the newest one in that block (0 in
        padding entries): the row stores the J inputs that end there.
    """

    load_Q: Tensor
    store_QR: Tensor
    ends_QR: Tensor


@dataclass(frozen=True, eq=False)
class PrefillKeys:
    """Keys of a prefill step: context blocks in front of the new tokens.

    contexts_Q: int64 [Q] tokens processed before; 0 in padding rows.
    lengths_Q: int64 [Q] new tokens; 0 in padding rows.
    far_QF: int64 [Q, F] blocks of positions 0 .. F * L - 1, all of them real and too far from every
        new token for a bias; F may be 0.
    blocks_QM: int64 [Q, M] the blocks behind them, up to position context - 1 in order, then the
        pad block; M = 0 where no row has a context.
    """

    contexts_Q: Tensor
    lengths_Q: Tensor
    far_QF: Tensor
    blocks_QM: Tensor

    @cached_property
    def every_QB(self) -> Tensor:
        """int64 [Q, F + M] blocks of positions 0 .. context - 1, then padding."""
        if not self.far_QF.shape[1]:
            return self.blocks_QM
        return torch.cat([self.far_QF, self.blocks_QM], dim=1)


@dataclass(frozen=True, eq=False)
class BlockList:
    """A flat list of key blocks of all requests of a decode step.

    blocks_P: int64 [P] block ids, request after request, in order of position; padded with the
        pad block.
    groups_P: int64 [P] row of the request that owns the entry, -1 in padding.
    The last entry of a request is the block of its new token; a list may begin anywhere before it.
    A list of windows is a rectangle: equally many entries for each row, padding behind its own.
    """

    blocks_P: Tensor
    groups_P: Tensor


@dataclass(frozen=True, eq=False)
class DecodeKeys:
    """Keys of a decode step: every block for global layers, the window's blocks for local ones."""

    every: BlockList
    window: BlockList


@dataclass(frozen=True, eq=False)
class HpuStep:
    """See the module docstring.

    positions_T: int64 [T], absolute position of each packed token; anything in padding.
    slots_T: int64 [T], cache slot (block * block_size + offset) of each packed token; a slot of
        the pad block in padding.
    num_rows: Q.
    rows: conv rows.
    keys: PrefillKeys or DecodeKeys; which of the two says what kind of step it is.
    block_size: positions per block.
    switches: how to run it.
    Raises ValueError where shapes contradict each other; values are trusted (they are on a device).
    """

    positions_T: Tensor
    slots_T: Tensor
    num_rows: int
    rows: ConvRows
    keys: PrefillKeys | DecodeKeys
    block_size: int
    switches: Switches = DEFAULTS
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        total = self.positions_T.shape[0]
        if self.num_rows < 1 or total % self.num_rows or total == 0:
            raise ValueError(
                f"{total} packed tokens do not make {self.num_rows} rows of one length"
            )
        if self.slots_T.shape != self.positions_T.shape:
            raise ValueError(
                f"slots_T has shape {tuple(self.slots_T.shape)}, positions_T {(total,)}: one each"
            )
        rows, touched = self.rows, self.rows.store_QR.shape
        if rows.load_Q.shape != (self.num_rows,) or rows.ends_QR.shape != touched:
            raise ValueError(
                f"conv rows are {tuple(rows.load_Q.shape)}, {tuple(touched)} and "
                f"{tuple(rows.ends_QR.shape)}, must be [Q], [Q, R] and [Q, R], Q = {self.num_rows}"
            )
        if isinstance(self.keys, DecodeKeys) and total != self.num_rows:
            raise ValueError(
                f"a decode step has one token a row, not {total} in {self.num_rows} rows"
            )

    @property
    def is_decode(self) -> bool:
        """Whether every row brings one token and reads a flat block list."""
        return isinstance(self.keys, DecodeKeys)

    @property
    def row_length(self) -> int:
        """S."""
        return self.positions_T.shape[0] // self.num_rows

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Q + 1 packed offsets 0, S, 2S, ...: fixed by the shape, padding included."""
        return tuple(range(0, self.positions_T.shape[0] + 1, self.row_length))

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """`make()`, computed at the first call with `key` and kept for the step: the step hoist.

        With the switch `step_hoist` off it is computed at every call.
        """
        if not self.switches.step_hoist:
            return make()
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
