"""`torch.hpu`: streams, events, memory and seeds of a device whose work is done when it is called.

What it is not: memory accounting. `mem_get_info` answers with the configured size, whatever is
allocated, so that a test can make vllm-gaudi's KV pool as small as it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from inkling_hpu.emulation.settings import EmulationSettings


class Event:
    """Recorded work is finished work."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        """Nothing to wait for later."""

    def wait(self, stream: Stream | None = None) -> None:
        """Returns at once."""

    def synchronize(self) -> None:
        """Returns at once."""

    def query(self) -> bool:
        """Always finished."""
        return True


class Stream:
    """A queue that is always empty."""

    def wait_stream(self, stream: Stream) -> None:
        """Returns at once."""

    def wait_event(self, event: Event) -> None:
        """Returns at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """The given event, or a new one, as recorded."""
        return event or Event()

    def synchronize(self) -> None:
        """Returns at once."""


@contextmanager
def stream(_: Stream) -> Iterator[None]:
    """Work inside goes where all work goes."""
    yield


def members(settings: EmulationSettings) -> dict[str, Callable[..., Any]]:
    """The functions and classes of `torch.hpu`."""
    default = Stream()
    name = f"GAUDI{settings.gaudi}"
    return {
        "Event": Event,
        "Stream": Stream,
        "stream": stream,
        "current_stream": lambda device=None: default,
        "default_stream": lambda device=None: default,
        "synchronize": lambda device=None: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda device=None: name,
        "get_device_properties": lambda device=None: SimpleNamespace(
            name=name, total_memory=settings.memory_bytes
        ),
        "mem_get_info": lambda device=None: (settings.memory_bytes, settings.memory_bytes),
    }


def attach(settings: EmulationSettings) -> None:
    """Put the module at `torch.hpu` and under its name in `sys.modules`."""
    module, random = ModuleType("torch.hpu"), ModuleType("torch.hpu.random")
    for name, member in members(settings).items():
        setattr(module, name, member)
    for name in ("manual_seed", "manual_seed_all"):
        setattr(random, name, torch.manual_seed)
        setattr(module, name, torch.manual_seed)
    module.random = random  # type: ignore[attr-defined]  # a module made here
    torch.hpu = module  # type: ignore[attr-defined]  # what the bridge does too
    sys.modules.update({"torch.hpu": module, "torch.hpu.random": random})
