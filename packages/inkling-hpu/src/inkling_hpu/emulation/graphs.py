"""`wrap_in_hpu_graph`: runs the module as it is, and counts the graphs that a Gaudi would capture.

What it is: in lazy mode the bridge captures one graph per distinct call of a wrapped module. Two
calls are the same graph when their arguments hash alike: tensors by shape and dtype, everything
else by value. A Python int that follows the step is therefore a new graph each step, and shows.

    signature(args, kwargs)  the text that is hashed;  captured()  how often each was seen

Calls with `bypass_hpu_graphs=True` are not captured. With a graph log (settings.py) each new
signature is a JSON line, so that a test can read what other processes captured.

What it is not: a capture. Nothing is replayed, so what a stale graph would compute is not shown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from inkling_hpu.emulation.settings import EmulationSettings

_seen: Counter[str] = Counter()


def captured() -> Counter[str]:
    """Signature -> number of calls, of this process, in order of first sight."""
    return Counter(_seen)


def signature(value: Any) -> str:
    """What of an argument decides which graph is replayed, as text."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        inside = ", ".join(f"{key}={signature(item)}" for key, item in sorted(value.items()))
        return "{" + inside + "}"
    if isinstance(value, (tuple, list)):
        fields = getattr(value, "_fields", None)  # a namedtuple: its order is not its content
        if fields is not None:
            return signature(dict(zip(fields, value, strict=True)))
        return "(" + ", ".join(signature(item) for item in value) + ")"
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return repr(value)
    return f"{type(value).__qualname__}#{hash(value)}"


def wrap_in_hpu_graph(module: Any, *_: Any, **__: Any) -> Any:
    """`module` with its forward recorded; the bridge's own options mean nothing here."""
    forward: Callable[..., Any] = module.forward

    @wraps(forward)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.pop("bypass_hpu_graphs", False):
            record(type(module).__qualname__, args, kwargs)
        return forward(*args, **kwargs)

    module.forward = recorded
    return module


def record(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count one call; write it to the graph log when it is the first of its kind."""
    text = f"{name}{signature(args)}{signature(kwargs)}"
    _seen[text] += 1
    log = EmulationSettings.from_environment(os.environ).graph_log
    if log and _seen[text] == 1:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        line = json.dumps({"process": os.getpid(), "digest": digest, "signature": text})
        with open(log, "a", encoding="utf-8") as file:  # one write: processes share the file
            file.write(line + "\n")
