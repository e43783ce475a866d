"""Sees every op of a run and tallies it by the rule.

    with OpCounter(place) as counter:
        model(x)
    counter.tally.total().ops

Not a profiler: ops run (or, on the meta device, pretend to) and nothing is timed. What happens
inside a marker op is not seen, because a dispatch mode does not see its own calls; whatever is
opened up runs with the mode on again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from inkling_hpu.counter.body import run_composite, run_custom
from inkling_hpu.counter.rule import Weight, op_name, weigh
from inkling_hpu.counter.tally import Key, Sums, Tally
from inkling_hpu.counter.traffic import traffic

OPENED = {Weight.COMPOSITE: run_composite, Weight.CUSTOM: run_custom}


class OpCounter(TorchDispatchMode):
    """Counts while it is entered.

    Args:
        place: layer kind and part of the op that is being issued; asked from inside the call.
    """

    def __init__(self, place: Callable[[], tuple[str, str]] = lambda: ("step", "all")) -> None:
        super().__init__()
        self.place = place
        self.tally = Tally()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        weight = weigh(func)
        if weight in OPENED:
            with self:
                return OPENED[weight](func, args, kwargs)
        result = func(*args, **kwargs)
        moved = 0 if weight is Weight.FREE else traffic(func, args, kwargs, result)
        self.tally.rows[Key(*self.place(), op_name(func))] += _one(weight, moved)
        return result


def _one(weight: Weight, moved: int) -> Sums:
    if weight is Weight.FREE:
        return Sums(views=1)
    if weight is Weight.ALL_REDUCE:
        return Sums(all_reduces=1, all_reduce_bytes=moved)
    return Sums(ops=1, bytes=moved)
