"""Greedy generation with the reference caches: the common entry of every back end, no server.

Not a scheduler: one request, its own caches, chunks of any size. `feed` is the whole mechanism;
full forward is one chunk, decode is chunks of one token.
"""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from inkling_core.conv_state.layout import ConvLayout
from inkling_core.conv_state.memory import TensorConvStore
from inkling_core.kv_cache import TensorKVCache
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_core.step import NULL_BLOCK, Step

BLOCK_SIZE = 128
"""Positions per block of the reference caches; the block length Gaudi serves with."""


def allocate_caches(decoder: Decoder, num_blocks: int, block_size: int = BLOCK_SIZE) -> Caches:
    """Fresh caches for this rank: `num_blocks` usable blocks beside the null block."""
    config, total, dtype = decoder.config, num_blocks + 1, decoder.dtype
    device = decoder.device
    layout = ConvLayout.from_config(config, decoder.tp.size)
    return Caches(
        TensorKVCache.allocate(config, total, block_size, dtype, decoder.tp, device),
        TensorConvStore.allocate(layout, config.num_hidden_layers, total, dtype, device),
    )


class TokenGenerator:
    """One sequence over a decoder.

    Args:
        decoder: with weights loaded.
        max_tokens: prompt and answer together; the caches hold exactly that many, rounded up to
            whole blocks.
        block_size: positions per block.
    """

    def __init__(self, decoder: Decoder, max_tokens: int, block_size: int = BLOCK_SIZE) -> None:
        num_blocks = -(-max_tokens // block_size)
        self.decoder, self.max_tokens, self.block_size = decoder, max_tokens, block_size
        self.block_table = range(NULL_BLOCK + 1, NULL_BLOCK + 1 + num_blocks)
        self.caches = allocate_caches(decoder, num_blocks, block_size)
        self.context = 0

    def hidden(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Appends tokens; returns their `[T, D]` final-normed hidden states.

        Raises:
            ValueError: more tokens than `max_tokens`, or none.
        """
        device = self.decoder.device
        ids_T = torch.as_tensor(ids, dtype=torch.int64, device=device)
        count = ids_T.numel()
        if not 0 < count <= self.max_tokens - self.context:
            raise ValueError(
                f"{count} tokens after {self.context}: give between 1 and "
                f"{self.max_tokens - self.context} (max_tokens={self.max_tokens})"
            )
        step = Step.single(count, self.context, self.block_table, self.block_size, device=device)
        hidden_TD = self.decoder(ids_T, step, self.caches)
        self.context += count
        return hidden_TD

    def feed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Appends tokens; returns their `[T, V]` logits."""
        return self.decoder.logits(self.hidden(ids))

    def generate(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        stop_ids: Collection[int] = (),
        chunk: int | None = None,
    ) -> Iterator[int]:
        """Yields greedy tokens, the stop token included.

        Args:
            prompt: token ids.
            max_new_tokens: upper bound.
            stop_ids: generation ends after any of these.
            chunk: prefill chunk size; the whole prompt at once by default.
        """
        size = chunk or len(prompt)
        hidden_TD = self.hidden(prompt[:size])
        for start in range(size, len(prompt), size):
            hidden_TD = self.hidden(prompt[start : start + size])
        for count in range(1, max_new_tokens + 1):
            token = int(self.decoder.logits(hidden_TD[-1:]).argmax())
            yield token
            if token in stop_ids or count == max_new_tokens:
                return
            hidden_TD = self.hidden([token])
