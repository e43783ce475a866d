"""One forward step over packed tokens of several requests, told without any engine's words.

What it is: the neutral description that the decoder, the KV cache and the conv store read.
A step processes T new tokens. Request q owns the packed rows `starts[q]:starts[q + 1]`; its first
new token stands at absolute position `contexts[q]`, because that many were processed before.
Position p of request q lives in block `block_table_QM[q, p // block_size]`, offset
`p % block_size`; slot = block * block_size + offset.

Padding: rows past `starts[-1]` belong to nobody. They are computed (static shapes want that) and
thrown away; their slot is 0, inside the null block, which no request ever owns.

What it is not: a scheduler (the engine owns that) or a cache (kv_cache.py, conv_state/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

NULL_BLOCK = 0  # the block that absorbs padding writes; never allotted to a request


class PackedStep(Protocol):
    """What the decoder itself reads of a step. The caches and ops of a back end may need more, and
    then a step of its own kind; without an engine that asks for one, `Step` serves."""

    @property
    def positions_T(self) -> Tensor:
        """int64 [T], absolute position of each packed token."""
        ...

    @property
    def starts(self) -> tuple[int, ...]:
        """Q + 1 packed offsets, the first 0."""
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """The packed tokens of one step and where each of them lives.

    positions_T: int64 [T], absolute position of each packed token (anything in padding rows).
    starts: Q+1 packed offsets, the first 0, strictly rising: every request has a new token.
    contexts: Q counts of tokens processed before this step.
    block_table_QM: int64 [Q, M] block ids in order of position; entries past a request's need
        are ignored and may hold anything.
    block_size: positions per block.

    Construction checks what the host knows (ValueError); it never waits for the device, so block
    ids and positions inside given tensors are trusted. `build` and `single` check ids too.
    """

    positions_T: Tensor
    starts: tuple[int, ...]
    contexts: tuple[int, ...]
    block_table_QM: Tensor
    block_size: int

    def __post_init__(self) -> None:
        _check_ranges(self.starts, self.contexts, self.positions_T.shape[0])
        _check_table(self.block_table_QM, self.starts, self.contexts, self.block_size)
        for name in ("positions_T", "block_table_QM"):
            dtype = getattr(self, name).dtype
            if dtype != torch.int64:
                raise ValueError(f"{name} is {dtype}, must be torch.int64: cast it with .long()")

    @classmethod
    def build(
        cls,
        lengths: Sequence[int],
        contexts: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        block_size: int,
        *,
        padded_to: int | None = None,
        device: torch.device | str | None = None,
    ) -> Step:
        """Make a step from plain lists, one entry per request.

        lengths: new tokens per request, >= 1. block_tables: ragged, block ids >= 1.
        padded_to: T when the packed batch is to be longer than the new tokens (None: no padding).
        Raises ValueError naming the request and the limit it breaks.
        """
        if not len(lengths) == len(contexts) == len(block_tables):
            raise ValueError(
                f"{len(lengths)} lengths, {len(contexts)} contexts and {len(block_tables)} block "
                "tables: give one of each per request"
            )
        starts = [0]
        positions: list[int] = []
        for length, context in zip(lengths, contexts, strict=True):
            starts.append(starts[-1] + length)
            positions.extend(range(context, context + length))
        if padded_to is not None and padded_to < len(positions):
            raise ValueError(f"padded_to={padded_to} is below the step's {len(positions)} tokens")
        positions.extend([0] * ((padded_to or 0) - len(positions)))
        return cls(
            torch.tensor(positions, dtype=torch.int64, device=device),
            tuple(starts),
            tuple(contexts),
            _padded_table(lengths, contexts, block_tables, block_size).to(device),
            block_size,
        )

    @classmethod
    def single(
        cls,
        num_tokens: int,
        context: int,
        block_table: Sequence[int],
        block_size: int,
        *,
        device: torch.device | str | None = None,
    ) -> Step:
        """A step of one request without padding: `num_tokens` new ones after `context` old ones."""
        return cls.build([num_tokens], [context], [block_table], block_size, device=device)

    @property
    def num_requests(self) -> int:
        """Q, padding excluded."""
        return len(self.contexts)

    @property
    def num_tokens(self) -> int:
        """Real tokens: T without the padding rows."""
        return self.starts[-1]

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """New tokens of each request."""
        return tuple(b - a for a, b in zip(self.starts, self.starts[1:], strict=False))

    @cached_property
    def slots_T(self) -> Tensor:
        """int64 [T]: block * block_size + offset of each packed token; 0 in padding rows."""
        positions_T = self.positions_T[: self.num_tokens]
        device = positions_T.device
        lengths_Q = torch.tensor(self.lengths, dtype=torch.int64, device=device)
        owners_T = torch.repeat_interleave(lengths_Q, output_size=self.num_tokens)
        blocks_T = self.block_table_QM[owners_T, positions_T // self.block_size]
        slots_T = torch.zeros_like(self.positions_T)
        slots_T[: self.num_tokens] = blocks_T * self.block_size + positions_T % self.block_size
        return slots_T


def _check_ranges(starts: tuple[int, ...], contexts: tuple[int, ...], total: int) -> None:
    if len(starts) != len(contexts) + 1:
        raise ValueError(
            f"{len(starts)} starts for {len(contexts)} contexts: starts needs one more entry than "
            "there are requests"
        )
    if starts[0] != 0:
        raise ValueError(f"starts[0] is {starts[0]}, must be 0: the first request opens the pack")
    for q, context in enumerate(contexts):
        if starts[q + 1] <= starts[q]:
            raise ValueError(
                f"request {q} has {starts[q + 1] - starts[q]} new tokens, needs at least 1: "
                "leave idle requests out of the step"
            )
        if context < 0:
            raise ValueError(f"request {q} has context {context}, must be >= 0")
    if starts[-1] > total:
        raise ValueError(f"starts end at {starts[-1]} but only {total} packed tokens are given")


def _check_table(
    table_QM: Tensor, starts: tuple[int, ...], contexts: tuple[int, ...], block_size: int
) -> None:
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}, must be >= 1")
    if table_QM.dim() != 2 or table_QM.shape[0] != len(contexts):
        raise ValueError(
            f"block_table_QM has shape {tuple(table_QM.shape)}, must be [{len(contexts)}, M]: "
            "one row per request"
        )
    width = table_QM.shape[1]
    for q, context in enumerate(contexts):
        needed = _blocks_for(context + starts[q + 1] - starts[q], block_size)
        if needed > width:
            raise ValueError(
                f"request {q} needs {needed} blocks of {block_size}, its table has {width}: "
                "allot its blocks before the step"
            )


def _padded_table(
    lengths: Sequence[int],
    contexts: Sequence[int],
    block_tables: Sequence[Sequence[int]],
    block_size: int,
) -> Tensor:
    """int64 [Q, M]: ragged tables side by side, the unused tail filled with the null block."""
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}, must be >= 1")
    for q, table in enumerate(block_tables):
        used = table[: _blocks_for(contexts[q] + lengths[q], block_size)]
        if used and min(used) <= NULL_BLOCK:
            raise ValueError(
                f"request {q} names block {min(used)}; ids start at {NULL_BLOCK + 1}, because "
                f"block {NULL_BLOCK} absorbs padding"
            )
    width = max((len(table) for table in block_tables), default=0)
    rows = [list(table) + [NULL_BLOCK] * (width - len(table)) for table in block_tables]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width)


def _blocks_for(num_positions: int, block_size: int) -> int:
    return -(-num_positions // block_size)
