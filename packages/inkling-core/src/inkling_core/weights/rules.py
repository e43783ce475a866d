"""Tensor-parallel rules: which rows or columns of a published tensor a rank holds. No torch.

It turns (shape, rule, rank) into one contiguous range along one dimension; reading that range is
`reader`'s, and which tensor has which rule is `names`'.

    Replicate        every rank holds all of it
    Split(dim, unit) `size / unit` groups in equal, contiguous, ordered runs
    KvSplit(dim, ..) as Split by KV head, up to one head a rank; beyond, rank r of P holds
                     head r * G // P of G heads, so P / G neighbours share one head

Why one contiguous range is always enough:
- query head j reads KV head j // (N / G). Ranks take query heads in order, so the KV heads that
  they need are in order too, sharded or shared.
- gate and up rows of w13 are interleaved (row 2i gate, row 2i+1 up). A contiguous run of whole
  pairs (unit 2) is an interleaved w13 of its own, and its experts' columns of w2 are the
  same run. Rows kept as [gate; up] halves would need two ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inkling_core.weights.errors import ShardingError

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

MAX_TP = 8  # one server of eight cards: nothing beyond it has been tried


@dataclass(frozen=True)
class Replicate:
    """Every rank holds the whole tensor."""


@dataclass(frozen=True)
class Split:
    """Equal contiguous pieces along `dim`, never cutting a group of `unit` rows."""

    dim: int
    unit: int = 1


@dataclass(frozen=True)
class KvSplit:
    """One or more KV heads of `unit` rows each along `dim`; shared by ranks beyond their count."""

    dim: int
    unit: int


Rule = Replicate | Split | KvSplit


@dataclass(frozen=True)
class Range:
    """Rows `start:stop` along `dim`; the other dimensions are whole."""

    dim: int
    start: int
    stop: int


def rank_range(shape: tuple[int, ...], rule: Rule, rank: int, size: int) -> Range | None:
    """What `rank` of `size` holds of a tensor of `shape`; None means all of it.

    Raises:
        ShardingError: the groups do not divide over the ranks (`check_tp` says so earlier).
    """
    if isinstance(rule, Replicate) or size == 1:
        return None
    groups, rest = divmod(shape[rule.dim], rule.unit)
    if rest:
        raise ShardingError([f"{shape} cannot be cut in groups of {rule.unit} along {rule.dim}"])
    if isinstance(rule, KvSplit) and groups < size:
        if size % groups:
            raise ShardingError([f"{groups} KV heads cannot be shared by {size} ranks"])
        first, count = rank * groups // size, 1
    elif groups % size:
        raise ShardingError([f"{groups} groups of {rule.unit} cannot be split over {size} ranks"])
    else:
        count = groups // size
        first = rank * count
    return Range(rule.dim, first * rule.unit, (first + count) * rule.unit)


def rank_shape(shape: tuple[int, ...], rule: Rule, size: int) -> tuple[int, ...]:
    """Shape of one rank's part; equal on all ranks."""
    part = rank_range(shape, rule, 0, size)
    if part is None:
        return shape
    return (*shape[: part.dim], part.stop - part.start, *shape[part.dim + 1 :])


def check_tp(config: InklingConfig, rank: int, size: int) -> None:
    """Raises `ShardingError` naming every number that does not divide over `size` ranks."""
    problems = list(_tp_problems(config, rank, size))
    if problems:
        raise ShardingError(problems)


def _tp_problems(config: InklingConfig, rank: int, size: int) -> Iterator[str]:
    if not 1 <= size <= MAX_TP:
        yield f"tp_size = {size}: must be 1..{MAX_TP}"
        return
    if not 0 <= rank < size:
        yield f"tp_rank = {rank}: must be 0..{size - 1} for tp_size = {size}"
    must_divide = {
        "num_attention_heads": config.num_attention_heads,
        "moe_intermediate_size": config.moe_intermediate_size,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
    }
    for name, value in must_divide.items():
        if value % size:
            yield f"{name} = {value} does not divide by tp_size = {size}; {_usable(config)}"
    for name in ("num_key_value_heads", "swa_num_key_value_heads"):
        heads = getattr(config, name)
        if heads % size and size % heads:
            yield (
                f"{name} = {heads} can be neither split over nor shared by tp_size = {size} ranks; "
                f"{_usable(config)}"
            )


def _usable(config: InklingConfig) -> str:
    return f"usable sizes: {', '.join(map(str, usable_tp(config)))}"


def usable_tp(config: InklingConfig) -> list[int]:
    """The tensor-parallel sizes 1..8 that this model can be cut into."""
    widths = (
        config.num_attention_heads,
        config.moe_intermediate_size,
        config.intermediate_size,
        config.vocab_size,
    )
    heads = (config.num_key_value_heads, config.swa_num_key_value_heads)
    return [
        size
        for size in range(1, MAX_TP + 1)
        if all(width % size == 0 for width in widths)
        and all(head % size == 0 or size % head == 0 for head in heads)
    ]
