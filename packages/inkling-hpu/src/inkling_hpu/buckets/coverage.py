"""Which shapes the scheduler can ask for, which bucket each gets, and how much of that is padding.

    prefill   1 <= q <= chunk,  0 <= blocks <= ceil((max_model_len - q) / block)
              a chunk has any length: the step's budget is shared with decodes and other prefills;
              it starts anywhere: at 0, after a prefix hit of any number of blocks, after any chunk
    decode    1 <= B <= max_num_seqs,  B <= blocks <= B * ceil(max_model_len / block)
              requests that share a prefix count its blocks once each, so the pool is no limit
    choice    the first bucket of the ascending list that is no smaller in any dimension
    padding   bucket / asked - 1, by query tokens (requests in decode) and by blocks; not counted
              where the bucket is no larger than the profile's smallest size of that dimension;
              cached blocks for a prefill that has none are without limit

The choice changes only where a size of the list is passed, so the plane of shapes is cut at the
sizes into cells of one choice each, and the worst of a cell is at its smallest reachable corner:
all shapes are judged, none is sampled.

What it is not: a generator; any list can be examined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from inkling_hpu.buckets.generate import Bucket, Buckets
from inkling_hpu.buckets.profile import Profile

Shape = tuple[int, int, int]
"""A bucket's three numbers before padding."""


@dataclass(frozen=True)
class Worst:
    """The largest padding of one dimension: 25 percent is a quarter more than was asked for; None
    is blocks where none were asked for."""

    percent: Fraction | None
    shape: Shape | None = None
    bucket: Bucket | None = None

    def within(self, percent: int) -> bool:
        """Whether it is no more than this."""
        return self.percent is not None and self.percent <= percent


@dataclass(frozen=True)
class Coverage:
    """`missing` holds the smallest shape of every cell that no bucket covers; `rows` the worst
    padding by query tokens (prefill) or requests (decode), `blocks` that by blocks."""

    missing: tuple[Shape, ...]
    rows: Worst
    blocks: Worst

    def holds(self, percent: int) -> bool:
        """Whether nothing is missing and no padding is above this."""
        return not self.missing and self.rows.within(percent) and self.blocks.within(percent)


def choose(buckets: Sequence[Bucket], shape: Shape) -> Bucket | None:
    """The bucket that vllm-gaudi takes for a shape, from an ascending list; None: it has none."""
    for bucket in buckets[bisect_left(buckets, shape) :]:
        if all(size >= asked for size, asked in zip(bucket, shape, strict=True)):
            return bucket
    return None


def loaded(profile: Profile, buckets: Buckets) -> Buckets:
    """What vllm-gaudi keeps of a list: it drops buckets beyond the limits of the server, and a
    decode with fewer blocks than requests; one with more blocks than they can hold is cut."""
    most, chunk = profile.context_blocks(1), profile.chunk
    prefill = {
        (batch, query, blocks)
        for batch, query, blocks in buckets.prefill
        if batch * query <= chunk and query <= profile.max_model_len and blocks <= most
    }
    decode = {
        (batch, query, min(blocks, batch * profile.request_blocks))
        for batch, query, blocks in buckets.decode
        if batch <= blocks
    }
    return Buckets(tuple(sorted(prefill)), tuple(sorted(decode)))


def prefill_coverage(profile: Profile, buckets: Buckets) -> Coverage:
    """Of every prefill of the profile."""
    queries = sorted({query for _, query, _ in buckets.prefill})
    contexts = sorted({blocks for *_, blocks in buckets.prefill})
    corners = (
        (1, query, blocks)
        for query, _ in _cells(queries, 1, profile.longest_query)
        for blocks, _ in _cells(contexts, 0, profile.context_blocks(query))
    )
    smallest = profile.smallest_query, profile.smallest_context
    return _judge(buckets.prefill, corners, 1, smallest)


def decode_coverage(profile: Profile, buckets: Buckets) -> Coverage:
    """Of every decode step of the profile."""
    batches = sorted({batch for batch, *_ in buckets.decode})
    ladder = sorted({blocks for *_, blocks in buckets.decode})
    corners = (
        # the fewest requests of the cell that can hold these blocks, and the fewest blocks of them
        (max(batch, -(-blocks // profile.request_blocks)), 1, blocks)
        for batch, last in _cells(batches, 1, profile.max_num_seqs)
        for blocks, _ in _cells(ladder, batch, last * profile.request_blocks)
    )
    return _judge(buckets.decode, corners, 0, (1, profile.fewest_decode_blocks))


def unwarmed(profile: Profile, buckets: Buckets) -> list[Bucket]:
    """Prefill buckets whose graph the warm-up does not make.

    vllm-gaudi warms a bucket with a request of its size; where that would be longer than a request
    may be, with as many cached blocks fewer, and that request may fall into a smaller bucket.
    """

    def dummy(bucket: Bucket) -> Shape:
        batch, query, blocks = bucket
        room = max(0, (profile.max_model_len - query) // profile.block_size)
        return batch, query, min(blocks, room)

    return [b for b in buckets.prefill if choose(buckets.prefill, dummy(b)) != b]


def _cells(sizes: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """`first..last` cut after every size: the first and the last value of each piece."""
    cuts = [size for size in sizes if first <= size < last]
    for before, until in pairwise([first - 1, *cuts, last]):
        yield before + 1, until


def _judge(
    buckets: Sequence[Bucket], corners: Iterator[Shape], dimension: int, smallest: tuple[int, int]
) -> Coverage:
    missing: list[Shape] = []
    rows = blocks = Worst(Fraction(0))
    for shape in corners:
        bucket = choose(buckets, shape)
        if bucket is None:
            missing.append(shape)
            continue
        rows = _worse(rows, shape, bucket, dimension, smallest[0])
        blocks = _worse(blocks, shape, bucket, 2, smallest[1])
    return Coverage(tuple(missing), rows, blocks)


def _worse(worst: Worst, shape: Shape, bucket: Bucket, dimension: int, smallest: int) -> Worst:
    asked, size = shape[dimension], bucket[dimension]
    if worst.percent is None or size == asked or (asked and size <= smallest):
        return worst
    percent = Fraction(100 * (size - asked), asked) if asked else None
    if percent is None or percent > worst.percent:
        return Worst(percent, shape, bucket)
    return worst
