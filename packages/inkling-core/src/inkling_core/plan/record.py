"""What a plan says, on any device.

    sum of the parts = memory of a card            no part is negative: `Plan` refuses to be made so
    pool tokens      = blocks * block_size         as the server logs them
    requests of n    = (blocks - 1) // ceil(n / block_size)          block 0 is nobody's

What it is not: the arithmetic of a device (cpu.py; inkling_hpu.plan).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from inkling_core.plan.settings import PlanSettings

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

LENGTHS = 5  # rows of the table of requests: the longest, its half, and so on


@dataclass(frozen=True)
class Part:
    """What takes memory of a card, and how much of it, in bytes."""

    name: str
    num_bytes: int


@dataclass(frozen=True)
class Fitting:
    """Requests of one length in tokens: that the pools of all servers hold at the same time, and
    that decode together (`max_num_seqs` of each server at most)."""

    length: int
    in_pool: int
    at_once: int


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of a decode step of so many streams: expected, and the ends of its interval."""

    streams: int
    ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Plan:
    """A server, or several equal ones, on one machine.

    model: as it was named. ranks: cards that each server takes. idle_cards: that none takes.
    parts: of one card's memory. card_bytes: their sum. blocks: of each pool, the null block
    included. buckets: what `inkling buckets` says in JSON, or None. steps: empty where nothing is
    known. notes: what is assumed, and what is not known. command: starts one server.
    Raises ValueError where a part is negative or the parts are not the card.
    """

    device: str
    model: str
    ranks: int
    servers: int
    idle_cards: int
    parts: tuple[Part, ...]
    card_bytes: int
    blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    buckets: Mapping[str, Any] | None
    steps: tuple[StepTime, ...]
    notes: tuple[str, ...]
    command: str

    def __post_init__(self) -> None:
        sizes = [part.num_bytes for part in self.parts]
        if min(sizes) < 0 or sum(sizes) != self.card_bytes:
            told = ", ".join(f"{part.name} {part.num_bytes:,}" for part in self.parts)
            raise ValueError(f"parts of {self.card_bytes:,} bytes do not add up: {told}")

    @property
    def pool_tokens(self) -> int:
        """Tokens of all pools."""
        return self.servers * self.blocks * self.block_size

    def fitting(self, length: int) -> Fitting:
        """How many requests of `length` tokens there can be."""
        in_pool = (self.blocks - 1) // -(-length // self.block_size)
        at_once = min(in_pool, self.max_num_seqs)
        return Fitting(length, self.servers * in_pool, self.servers * at_once)

    def lengths(self) -> list[int]:
        """The longest request, its half, and so on, down to a block."""
        halves = [self.max_model_len >> n for n in range(LENGTHS)]
        return [length for length in halves if length >= self.block_size] or halves[:1]

    def as_json(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        requests = [asdict(self.fitting(length)) for length in self.lengths()]
        return {
            "possible": True,
            **asdict(self),
            "pool_tokens": self.pool_tokens,
            "requests": requests,
        }


@dataclass(frozen=True)
class Way:
    """A setting whose value may be moved, and where to: up, or down."""

    setting: str
    up: bool


@dataclass(frozen=True)
class Problem:
    """Why a plan is impossible.

    key: the same for the same problem at other values. text: the value and its limit. ways: what
    can be moved against it. stage: problems of a later stage show once earlier ones are gone.
    """

    key: str
    text: str
    ways: tuple[Way, ...]
    stage: int = 0


@dataclass(frozen=True)
class Planner:
    """One kind of device.

    problems: everything against a plan, empty where it is possible. plan: the plan, where there is
    no problem. sizes: tensor-parallel sizes that a model can have there. memory_bytes: of a card,
    on a CPU of the machine. block_sizes: those that can be served, empty where any can.
    """

    problems: Callable[[PlanSettings, InklingConfig], list[Problem]]
    plan: Callable[[PlanSettings, InklingConfig], Plan]
    sizes: Callable[[InklingConfig], list[int]]
    memory_bytes: Callable[[PlanSettings], int]
    block_sizes: tuple[int, ...] = ()


def ranks_of(asked: PlanSettings, sizes: list[int]) -> int:
    """Tensor-parallel size that was asked for, or the largest of `sizes` that the cards hold."""
    fitting = [size for size in sizes if size <= asked.cards]
    return asked.tensor_parallel or max(fitting, default=1)


def length_of(asked: PlanSettings, config: InklingConfig) -> int:
    """Longest request that was asked for, or the checkpoint's limit."""
    return asked.max_model_len or config.max_position_embeddings


def shared_problems(asked: PlanSettings, ranks: int) -> list[Problem]:
    """What vLLM refuses on every device."""
    found = []
    if ranks > asked.cards:
        text = f"tensor_parallel={ranks} is more than cards={asked.cards}"
        found.append(
            Problem("cards", text, (Way("cards", up=True), Way("tensor_parallel", up=False)))
        )
    if asked.max_num_batched_tokens < asked.max_num_seqs:
        text = (
            f"max_num_batched_tokens={asked.max_num_batched_tokens} is below "
            f"max_num_seqs={asked.max_num_seqs}: every decoding request needs a token per step"
        )
        ways = (Way("max_num_batched_tokens", up=True), Way("max_num_seqs", up=False))
        found.append(Problem("step", text, ways))
    return found
