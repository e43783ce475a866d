"""Where each convolution's channels lie inside one packed snapshot row.

A layer has four short convolutions: on the flat key projection, on the flat value projection, on
the attention block's output and on the MLP block's output. A row packs the last J = taps - 1 raw
inputs of all four side by side, oldest position first:

    row [J, width],  width = K | V | ATTN | MLP = G*H/tp | G*H/tp | D | D

Under tensor parallelism the K and V channels follow the KV heads (sharded up to their count, then
replicated); the hidden-wide streams are replicated, because they sit behind the all-reduce. All
layers have one row width, since one block table serves them all: a layer with fewer KV heads than
another (Inkling's global ones) leaves the last channels of its K and V streams unused.

What it is not: the rows themselves (memory.py, or a back end's own) nor when they may be touched
(protocol.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Protocol

import torch


class Stream(IntEnum):
    """The short convolutions of a layer, in the order in which a layer computes them."""

    K = 0
    V = 1
    ATTN = 2
    MLP = 3


class ConvGeometry(Protocol):
    """The configuration values that fix a row's shape (InklingConfig has them)."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_key_value_heads(self) -> int: ...
    @property
    def swa_num_key_value_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def conv_kernel_size(self) -> int: ...


@dataclass(frozen=True)
class ConvLayout:
    """Shape of a row on one tensor-parallel rank.

    taps: W, the convolution's kernel size, >= 2. widths: channels per Stream, each >= 1.
    Raises ValueError when a value is out of range.
    """

    taps: int
    widths: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        if self.taps < 2:
            raise ValueError(
                f"taps is {self.taps}, must be >= 2: a kernel of one tap has no history to keep"
            )
        if len(self.widths) != len(Stream) or min(self.widths) < 1:
            raise ValueError(
                f"widths are {self.widths}, must be {len(Stream)} positive channel counts, in the "
                f"order {', '.join(stream.name for stream in Stream)}"
            )

    @classmethod
    def from_config(cls, config: ConvGeometry, tp_size: int = 1) -> ConvLayout:
        """Layout on each of `tp_size` ranks, one for all layers.

        Where local and global layers differ in KV heads, the larger count sets the width.
        ValueError when KV heads and ranks do not divide.
        """
        counts = (config.num_key_value_heads, config.swa_num_key_value_heads)
        for heads in counts:
            if tp_size < 1 or (heads % tp_size and tp_size % heads):
                raise ValueError(
                    f"tp_size is {tp_size} with {heads} KV heads: one must divide the other, so "
                    "that every rank holds whole heads or a whole copy of one"
                )
        heads = max(counts)
        kv_width = max(1, heads // tp_size) * config.head_dim
        widths = (kv_width, kv_width, config.hidden_size, config.hidden_size)
        return cls(config.conv_kernel_size, widths)

    @property
    def history(self) -> int:
        """J, the positions that a row keeps."""
        return self.taps - 1

    @property
    def width(self) -> int:
        """Channels of a packed row."""
        return sum(self.widths)

    @property
    def row_shape(self) -> tuple[int, int]:
        """[J, width] of the row of one block in one layer."""
        return (self.history, self.width)

    @property
    def offsets(self) -> tuple[int, ...]:
        """First packed channel of each stream."""
        return tuple(accumulate(self.widths[:-1], initial=0))

    def channels(self, stream: Stream, width: int | None = None) -> slice:
        """The packed channels of `stream`; the first `width` of them on a layer with fewer."""
        return slice(self.offsets[stream], self.offsets[stream] + (width or self.widths[stream]))

    def row_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one row: what a layer's block costs beside its keys and values."""
        return self.history * self.width * dtype.itemsize
