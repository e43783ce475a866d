"""What one op is.

    weight 1     every call that reaches the dispatcher of torch below its composite ops, casts,
                 copies, in-place ops and fills among them
    weight 0     views, and tensors that are made without being written (FREE)
    weight 1     the marker ops of `inkling_hpu.markers`, whatever their torch bodies do: Gaudi has
                 a kernel for each. `all_reduce` is counted in a column of its own
    opened up    composite ops of torch, and every other custom op: they count as their bodies do

The list of markers is spelled out here and not taken from `markers`: a name added there stays what
it is until somebody changes the rule.
"""

from __future__ import annotations

from enum import Enum, auto

import torch
from torch._ops import OpOverload

FREE = frozenset(
    (
        *("view", "_unsafe_view", "transpose", "t", "slice", "select", "expand", "unsqueeze"),
        *("squeeze", "permute", "detach", "alias", "split", "split_with_sizes", "unbind"),
        *("as_strided", "unflatten", "empty", "new_empty", "empty_like"),
    )
)
MARKERS = frozenset(
    f"inkling_hpu::{name}"
    for name in ("rms_norm", "moe", "fsdpa", "fsdpa_lse", "mm_f32", "all_gather")
)
ALL_REDUCE = "inkling_hpu::all_reduce"
TORCH_OWN = frozenset(("aten", "prim", "prims"))


class Weight(Enum):
    """How a call counts."""

    FREE = auto()
    ONE = auto()
    ALL_REDUCE = auto()
    COMPOSITE = auto()
    CUSTOM = auto()


def weigh(func: OpOverload) -> Weight:
    """The weight of one call; an overload of a marker beside its default one is a custom op."""
    name = func.name()
    if name == ALL_REDUCE:
        return Weight.ALL_REDUCE
    if name in MARKERS:
        return Weight.ONE
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return Weight.COMPOSITE
    if func.namespace not in TORCH_OWN:
        return Weight.CUSTOM
    return Weight.FREE if op_name(func) in FREE else Weight.ONE


def op_name(func: OpOverload) -> str:
    """`aten::add.Tensor` -> `add`; other namespaces keep theirs: `inkling_hpu::moe`."""
    name = func.name().partition(".")[0]
    return name.removeprefix("aten::")
