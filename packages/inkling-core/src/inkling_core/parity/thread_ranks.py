"""Tensor parallelism emulated in one process: a thread per rank, collectives over a barrier.

Not a communication library; sums run in rank order, so a run is reproducible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from inkling_core.parallel import TensorParallel

Result = TypeVar("Result")


class ThreadRanks:
    """`size` ranks that meet at every collective, counted in `num_reduces` per rank."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Tensor] = [torch.empty(0)] * size
        self.num_reduces = 0

    def _meet(self, rank: int, x: Tensor) -> list[Tensor]:
        self.slots[rank] = x
        self.barrier.wait(timeout=60)
        parts = list(self.slots)
        self.barrier.wait(timeout=60)
        return parts

    def rank(self, rank: int) -> TensorParallel:
        def all_reduce(x: Tensor) -> Tensor:
            self.num_reduces += rank == 0
            return torch.stack(self._meet(rank, x)).sum(0)

        def all_gather(x: Tensor) -> Tensor:
            return torch.cat(self._meet(rank, x), dim=-1)

        return TensorParallel(rank, self.size, all_reduce, all_gather)

    def run(self, work: Callable[[TensorParallel], Result]) -> list[Result]:
        """Runs `work` on every rank at once; a rank's exception breaks the others' barrier."""

        def guarded(rank: int) -> Result:
            try:
                return work(self.rank(rank))
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(guarded, range(self.size)))
