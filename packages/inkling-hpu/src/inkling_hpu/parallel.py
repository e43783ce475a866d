"""Tensor parallelism through the marker collectives, as the decoder sees it.

Not a process group: the engine's collectives stand behind `markers.kernels["all_reduce"]` and
`["all_gather"]`. One rank has none and reduces nothing.
"""

from __future__ import annotations

from torch import Tensor

from inkling_core.parallel import TensorParallel
from inkling_hpu import markers
from inkling_hpu.switches import DEFAULTS, Switches


def collectives(rank: int, size: int, switches: Switches = DEFAULTS) -> TensorParallel:
    """This rank's view; `switches.single_reduce` says how a mixture of experts is summed."""
    if size == 1:
        return TensorParallel(single_reduce=switches.single_reduce)

    def all_gather(x: Tensor) -> Tensor:
        return markers.all_gather(x, size)

    return TensorParallel(rank, size, markers.all_reduce, all_gather, switches.single_reduce)
