"""What every history must be: raw inputs made from tokens, and the dense recomputation over them.

In a real model the raw input of a convolution at position p depends on all tokens up to p. Here it
is a fixed pseudo-random function of that prefix, of the layer, the stream and the channel. So two
requests agree on the inputs of a shared prefix, as a prefix cache demands, and disagree, on every
channel, as soon as one token differs.

What it is not: clever. `history` is the definition, position by position, sharing no code with any
store or with the plan.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout

_WORD = (1 << 61) - 1  # a prime: prefix hashes stay far from int64's sign bit


class TokenSequence:
    """All tokens that a request will ever process: its prompt, then the answer it will give.

    `hashes[p]` identifies tokens[:p + 1].
    """

    def __init__(self, tokens: Iterable[int]) -> None:
        self.tokens = tuple(tokens)
        self.hashes: list[int] = []
        prefix = 1
        for token in self.tokens:
            prefix = (prefix * 1_000_003 + token + 1) % _WORD
            self.hashes.append(prefix)
        self._hashes_S = torch.tensor(self.hashes, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.tokens)

    def raw_inputs(self, layout: ConvLayout, layer: int) -> Tensor:
        """x_SC float32 [positions, packed width of all streams], values in [-1, 1)."""
        codes_C = torch.arange(layout.width) + layer * layout.width + 1
        mixed_SC = self._hashes_S[:, None] * (2 * codes_C + 1) * 0x9E3779B97F4A7C1  # wraps: wanted
        mixed_SC = (mixed_SC ^ (mixed_SC >> 29)) * 0x5851F42D4C957F2D
        return ((mixed_SC >> 40) & 0xFFFFFF).float() / (1 << 23) - 1.0


def history(x_SC: Tensor, position: int, taps: int) -> Tensor:
    """The taps - 1 inputs before `position`, oldest first; zeros where there is no position."""
    history_JC = torch.zeros(taps - 1, x_SC.shape[1])
    for j in range(taps - 1):
        source = position - (taps - 1) + j
        if source >= 0:
            history_JC[j] = x_SC[source]
    return history_JC


def branch(stem: TokenSequence, keep: int, tail: Iterable[int]) -> TokenSequence:
    """The first `keep` tokens of `stem`, then `tail`."""
    return TokenSequence([*stem.tokens[:keep], *tail])
