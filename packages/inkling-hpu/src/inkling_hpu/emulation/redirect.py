"""Every "hpu" device argument becomes "cpu", and indices are checked on the way.

What it is: a TorchFunctionMode. It sees each call of torch's Python API, rewrites device arguments
and hands calls that index to `indices.py`.

What it is not: a change of `torch.device`: `torch.device("hpu").type` stays "hpu", because vLLM's
configuration checks compare it. A tensor made "on hpu" says `device="cpu"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from inkling_hpu.emulation.indices import CHECKED

CPU = torch.device("cpu")
_NAME = re.compile(r"hpu(:\d+)?\Z")
# Functions whose positional strings may be devices. Elsewhere a string is left alone.
_TAKES_DEVICE_TEXT = frozenset({torch.Tensor.to})
_LEFT_ALONE = frozenset({torch.device})
_CONSTRUCTORS = frozenset(_device._device_constructors())


class HpuToCpu(TorchFunctionMode):
    """While pushed, "hpu" means "cpu" in this thread."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _LEFT_ALONE:
            return func(*args, **kwargs)
        if "device" in kwargs:
            kwargs["device"] = to_cpu(kwargs["device"])
        elif func in _CONSTRUCTORS and _default_is_hpu():
            kwargs["device"] = CPU
        text = func in _TAKES_DEVICE_TEXT
        args = tuple(to_cpu(item) if text or type(item) is torch.device else item for item in args)
        checked = CHECKED.get(func)
        if checked is not None:
            return checked(func, args, kwargs)
        return func(*args, **kwargs)


def push() -> None:
    """Redirect this thread for the rest of its life."""
    HpuToCpu().__enter__()


def to_cpu(value: Any) -> Any:
    """`value`, or the CPU where `value` names an HPU."""
    if isinstance(value, torch.device):
        return CPU if value.type == "hpu" else value
    if isinstance(value, str) and _NAME.match(value):
        return CPU
    return value


def _default_is_hpu() -> bool:
    # `with torch.device("hpu")` and torch.set_default_device sit below every other mode, so their
    # device has to be filled in here, before they see the call.
    default = _device.CURRENT_DEVICE
    return default is not None and to_cpu(default) is CPU
