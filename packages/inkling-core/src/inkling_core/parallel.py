"""Tensor-parallel rank, size and collectives, as the decoder sees them.

Not a process group: an engine wraps its own; tests emulate one with threads. The shard rules of
the weights live in `weights.names`. Per layer there are two all-reduces (after the attention
output and after the MLP or expert sum), one after the embedding, one gather of the logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add

from torch import Tensor


def _identity(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class TensorParallel:
    """One rank's view.

    Args:
        rank: `0 <= rank < size`.
        size: number of ranks.
        all_reduce: sums a tensor over the ranks.
        all_gather: concatenates the last dimension over the ranks, in rank order.
        single_reduce: whether `reduce_sum` adds before it reduces.
    """

    rank: int = 0
    size: int = 1
    all_reduce: Callable[[Tensor], Tensor] = _identity
    all_gather: Callable[[Tensor], Tensor] = _identity
    single_reduce: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} is outside 0..{self.size - 1}")

    def reduce_sum(self, *parts: Tensor) -> Tensor:
        """The sum of partial sums over all ranks: one collective, or one for each of them."""
        if self.single_reduce:
            return self.all_reduce(reduce(add, parts))
        return reduce(add, map(self.all_reduce, parts))

    def shard(self, count: int, what: str) -> int:
        """Number of `what` per rank. Raises ValueError where `count` does not divide."""
        if count % self.size:
            raise ValueError(
                f"{what}={count} does not divide by tensor-parallel size {self.size}; "
                f"choose a size that divides it"
            )
        return count // self.size

    def kv_heads(self, count: int) -> int:
        """Key/value heads per rank: `count / size` of them, or one copy where ranks outnumber them.

        Raises ValueError where neither divides the other.
        """
        if count % self.size and self.size % count:
            raise ValueError(
                f"{count} key/value heads and tensor-parallel size {self.size}: one must divide "
                "the other, so that a rank holds whole heads or a whole copy of one"
            )
        return max(1, count // self.size)


SINGLE = TensorParallel()
