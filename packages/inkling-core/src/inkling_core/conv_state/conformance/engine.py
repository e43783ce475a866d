"""A scheduler and block allocator in miniature, to make the schedules that a real engine makes.

Continuous batching with chunked prefill under a token budget; paged blocks with reference counts;
a prefix cache in which a full block is registered when it is ALLOTTED, before anything was
computed, so a later request of the same step can hit it; preemption of the newest request when
blocks run out, with resume by recomputation (prefix hits included); freed blocks reused oldest
first, their cache entries dropped only then.

What it is not: a model of any engine's policy in detail, nor a store. It decides which request
computes which positions in which blocks, nothing else.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from inkling_core.conv_state.conformance.sequences import TokenSequence
from inkling_core.step import NULL_BLOCK


@dataclass(eq=False)
class Request:
    """A prompt and the answer that it will decode one token at a time."""

    sequence: TokenSequence
    prompt: int  # tokens known on arrival, >= 1; the rest of the sequence is decoded
    known: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not 1 <= self.prompt <= len(self.sequence):
            raise ValueError(f"prompt is {self.prompt}, must be in 1..{len(self.sequence)}")
        self.known = self.prompt


@dataclass(frozen=True)
class Scheduled:
    """One request's part of a step: `length` new positions from `context` on, in `table`."""

    sequence: TokenSequence
    context: int
    length: int
    table: tuple[int, ...]


class BlockPool:
    """Blocks 1 .. num_blocks - 1, with reference counts and a cache of full prefixes."""

    def __init__(self, num_blocks: int) -> None:
        self.free = deque(block for block in range(num_blocks) if block != NULL_BLOCK)
        self.references: Counter[int] = Counter()
        self.block_of: dict[int, int] = {}
        self.prefix_of: dict[int, int] = {}
        self.used: set[int] = set()
        self.reused = 0

    def take(self) -> int:
        """A block whose last owner is forgotten only now."""
        block = self.free.popleft()
        prefix = self.prefix_of.pop(block, None)
        if prefix is not None:
            del self.block_of[prefix]
        self.reused += block in self.used
        self.used.add(block)
        self.references[block] = 1
        return block

    def share(self, block: int) -> None:
        if not self.references[block]:
            self.free.remove(block)
        self.references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):  # a prefix's tail goes first, its head stays longest
            self.references[block] -= 1
            if not self.references[block]:
                self.free.append(block)

    def register(self, block: int, prefix: int) -> None:
        if prefix not in self.block_of and block not in self.prefix_of:
            self.block_of[prefix] = block
            self.prefix_of[block] = prefix


class MiniEngine:
    """Call `add` at any time and `step` until it returns nothing.

    block_size: positions per block. num_blocks: pool size, null block included. budget: tokens per
    step. max_running: requests that may share a step. `counts` tells what has happened so far.
    """

    def __init__(self, block_size: int, num_blocks: int, budget: int, max_running: int = 8) -> None:
        self.block_size = block_size
        self.budget = budget
        self.max_running = max_running
        self.pool = BlockPool(num_blocks)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts: Counter[str] = Counter()

    def add(self, request: Request) -> None:
        """Queue a request. ValueError when the whole pool could not hold it."""
        needed = -(-len(request.sequence) // self.block_size)
        blocks = len(self.pool.free) + len(+self.pool.references)
        if needed > blocks:
            raise ValueError(f"the request needs {needed} blocks, the pool has {blocks}")
        self.waiting.append(request)

    def step(self) -> list[Scheduled]:
        """Schedule one step and count it as computed. Empty when nothing is left to do."""
        scheduled, preempted = self._schedule_running()
        if not preempted:
            scheduled += self._admit(self.budget - sum(part.length for _, part in scheduled))
        for request, part in scheduled:
            self._complete(request, part.length)
        return [part for _, part in scheduled]

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks away; it will start over from what is still cached."""
        self._drop(request)
        request.computed = 0
        self.waiting.appendleft(request)
        self.counts["preempted"] += 1

    def abort(self, request: Request) -> None:
        """Forget a running request: its client is gone."""
        self._drop(request)
        self.counts["aborted"] += 1

    def _drop(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []

    def _schedule_running(self) -> tuple[list[tuple[Request, Scheduled]], bool]:
        scheduled: list[tuple[Request, Scheduled]] = []
        preempted = False
        budget = self.budget
        for request in list(self.running):
            length = min(request.known - request.computed, budget)
            while length and request in self.running and not self._allot(request, length):
                self.preempt(self.running[-1])  # never one scheduled already: those come earlier
                preempted = True
            if length and request in self.running:
                scheduled.append((request, self._part(request, length)))
                budget -= length
        return scheduled, preempted

    def _admit(self, budget: int) -> list[tuple[Request, Scheduled]]:
        admitted: list[tuple[Request, Scheduled]] = []
        while self.waiting and budget and len(self.running) < self.max_running:
            request = self.waiting[0]
            for block in self._hits(request):
                self.pool.share(block)
                request.blocks.append(block)
            request.computed = len(request.blocks) * self.block_size
            length = min(request.known - request.computed, budget)
            if not self._allot(request, length):
                self.pool.release(request.blocks)
                request.blocks, request.computed = [], 0
                break
            self.counts["hit blocks"] += request.computed // self.block_size
            self.running.append(self.waiting.popleft())
            admitted.append((request, self._part(request, length)))
            budget -= length
        return admitted

    def _hits(self, request: Request) -> list[int]:
        """Cached blocks of the longest known prefix; one token at least is left to compute."""
        hits = []
        for end in range(self.block_size, request.known, self.block_size):
            block = self.pool.block_of.get(request.sequence.hashes[end - 1])
            if block is None:
                break
            hits.append(block)
        return hits

    def _allot(self, request: Request, length: int) -> bool:
        end = request.computed + length
        missing = -(-end // self.block_size) - len(request.blocks)
        if missing > len(self.pool.free):
            return False
        request.blocks += [self.pool.take() for _ in range(missing)]
        for index in range(end // self.block_size):
            prefix = request.sequence.hashes[(index + 1) * self.block_size - 1]
            self.pool.register(request.blocks[index], prefix)
        return True

    def _part(self, request: Request, length: int) -> Scheduled:
        return Scheduled(request.sequence, request.computed, length, tuple(request.blocks))

    def _complete(self, request: Request, length: int) -> None:
        request.computed += length
        if request.computed < request.known:
            return
        if request.known < len(request.sequence):
            request.known += 1  # the token that this step decoded
        else:
            self._drop(request)
            self.counts["finished"] += 1
