"""Runs the body of an op instead of the op, so that what the body calls can be counted.

Not a decomposition table: a composite op of torch takes its own decomposition, a custom op the
Python function that is registered for a real device. The fake kernel, which runs on the meta device
otherwise, says nothing about what a device does and is never used.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch._ops import OpOverload

DEVICES = ("CPU", "HPU", "PrivateUse1", "CUDA")
_PYTHON = re.compile(r"\.py:\d+")


class UncountableOp(RuntimeError):
    """An op whose body cannot be seen, and so not be counted."""


def run_composite(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch's own decomposition of a composite op."""
    return func.decompose(*args, **kwargs)


def run_custom(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The registered Python body of a custom op, on whatever device the arguments are.

    Raises UncountableOp where no device has a body written in Python: compiled code cannot be
    opened up, and counting it as one op would hide what it does.
    """
    for device in DEVICES:
        if torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), device):
            kernel = torch.library.get_kernel(func, device)
            if _PYTHON.search(repr(kernel)):
                keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[device])
                return kernel.call_boxed(keys, *args, **kwargs)
    raise UncountableOp(
        f"{func.name()} has no body in Python: what it does cannot be counted. Only the marker ops "
        "of inkling_hpu.markers count as one; call one of them, or ops of torch"
    )
