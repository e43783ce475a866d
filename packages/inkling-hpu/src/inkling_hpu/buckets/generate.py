"""The graphs of a profile: every combination of sizes that a step can need.

    prefill  (1, query tokens, cached blocks)       one request a step, as vllm-gaudi runs them
    decode   (requests, 1, KV blocks of them all)

A combination no step can reach is left out: cached blocks beyond what the context limit leaves
beside the shortest query of the bucket, and KV blocks that so few requests cannot hold.

What it is not: the proof that nothing is missing (coverage.py works on any list, also on one that
was written by hand).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from inkling_hpu.buckets.profile import Profile
from inkling_hpu.buckets.sizes import sizes

QUERY_UNIT = 32
"""Query sizes are multiples of it, but for the longest: vllm-gaudi's own step of its fallback."""

Bucket = tuple[int, int, int]
"""(requests, query tokens of each, blocks): cached blocks of each in prefill, of all in decode."""


@dataclass(frozen=True)
class Buckets:
    """Graphs in the order in which vllm-gaudi searches them: ascending."""

    prefill: tuple[Bucket, ...]
    decode: tuple[Bucket, ...]

    def __len__(self) -> int:
        return len(self.prefill) + len(self.decode)


def generate(profile: Profile) -> Buckets:
    """All buckets of a profile. Raises ValueError where its percentage cannot be held."""
    return Buckets(tuple(sorted(_prefill(profile))), tuple(sorted(_decode(profile))))


def _prefill(profile: Profile) -> set[Bucket]:
    percent = profile.padding_percent
    queries = sizes(profile.smallest_query, profile.longest_query, percent, QUERY_UNIT)
    contexts = [0]
    if most := profile.context_blocks(1):
        contexts += sizes(profile.smallest_context, most, percent)
    found: set[Bucket] = set()
    for shorter, query in pairwise([0, *queries]):
        listed = _up_to(contexts, profile.context_blocks(shorter + 1))
        found |= {(1, query, blocks) for blocks in _warmable(profile, query, listed)}
    return found


def _warmable(profile: Profile, query: int, listed: list[int]) -> list[int]:
    """Without a size next to the largest, where the warm-up would make that one's graph instead of
    the largest's (coverage.unwarmed) and the padding allows to do without."""
    room = (profile.max_model_len - query) // profile.block_size
    if len(listed) < 3 or room > listed[-2]:
        return listed
    fewest = listed[-3] + 1
    spared = 100 * listed[-1] <= (100 + profile.padding_percent) * fewest
    return [*listed[:-2], listed[-1]] if spared else listed


def _decode(profile: Profile) -> set[Bucket]:
    percent = profile.padding_percent
    batches = sizes(1, profile.max_num_seqs, percent)
    largest = profile.max_num_seqs * profile.request_blocks
    ladder = sizes(profile.fewest_decode_blocks, largest, percent)
    return {
        (batch, 1, blocks)
        for batch in batches
        for blocks in _up_to(ladder, batch * profile.request_blocks)
    }


def _up_to(ladder: list[int], most: int) -> list[int]:
    """The sizes below `most`, then `most` itself."""
    return [*takewhile(lambda size: size < most, ladder), most]
