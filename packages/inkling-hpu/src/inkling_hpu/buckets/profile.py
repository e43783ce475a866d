"""What decides the buckets of a server.

Not the buckets (generate.py) and not settings of a command (settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil

BLOCK = 128
"""Tokens of a KV block on Gaudi."""

MORE_THAN_ONE = ("max_model_len", "chunk", "smallest_query")
"""vllm-gaudi takes a bucket of one query token for a decode step."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What servers of several lengths may share.

    max_num_seqs: most requests that decode together.
    chunk: most new tokens of a step (vLLM's max_num_batched_tokens).
    padding_percent: most that a bucket may exceed what is in it, dimension by dimension.
    smallest_query: new tokens to which a shorter prefill is padded, whatever the percentage.
    smallest_context: cached blocks to which a shorter context is padded; a prefill without any has
    a bucket of its own.
    smallest_decode: KV blocks to which a shorter decode step is padded, all requests together; at
    least one for each request.
    """

    max_num_seqs: int = 16
    chunk: int = 2048
    padding_percent: int = 25
    smallest_query: int = 256
    smallest_context: int = 16
    smallest_decode: int = 64


@dataclass(frozen=True)
class Profile(Limits):
    """Limits of a server and the padding that its operator allows.

    max_model_len: longest request in tokens, prompt and answer.
    block_size: tokens of a KV block.

    Raises ValueError naming the value and its limits.
    """

    max_model_len: int
    block_size: int = BLOCK

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 2 if field.name in MORE_THAN_ONE else 1
            if getattr(self, field.name) < least:
                raise ValueError(
                    f"{field.name}={getattr(self, field.name)} must be at least {least}"
                )

    @property
    def longest_query(self) -> int:
        """New tokens of the largest prefill."""
        return min(self.chunk, self.max_model_len)

    @property
    def request_blocks(self) -> int:
        """KV blocks of the longest request while it decodes."""
        return ceil(self.max_model_len / self.block_size)

    @property
    def fewest_decode_blocks(self) -> int:
        """The smallest size of a decode step in KV blocks."""
        return max(self.smallest_decode, self.max_num_seqs)

    def context_blocks(self, query: int) -> int:
        """Most cached blocks beside so many new tokens."""
        return ceil((self.max_model_len - query) / self.block_size)
