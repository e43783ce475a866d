"""Time of a function on a device, and the roofline it is held to, both measured in this run.

    roofline = max(bytes / measured copy rate, FLOPs / measured matmul rate)

A time is the median over repeats between device events (the host's clock on a CPU), after warm-up;
a cache-sized buffer is overwritten before each repeat, so that operands come from memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

FLUSH_BYTES = 256 << 20  # several times an H200's level-2 cache


@dataclass(frozen=True)
class Machine:
    """Measured rates. bytes_per_s counts what is read and what is written."""

    device: torch.device
    name: str
    bytes_per_s: float
    flops_per_s: float

    def roofline(self, num_bytes: float, flops: float) -> float:
        """Least seconds that work of this size takes here."""
        return max(num_bytes / self.bytes_per_s, flops / self.flops_per_s)


def seconds(run: Callable[[], object], device: torch.device, repeats: int = 15) -> float:
    """Median time of `run`."""
    for _ in range(3):
        run()
    found = []
    for _ in range(repeats if device.type == "cuda" else 1):
        found.append(_once(run, device))
    return statistics.median(found)


def _once(run: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    _flush(device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


_buffers: dict[torch.device, torch.Tensor] = {}


def _flush(device: torch.device) -> None:
    if device not in _buffers:
        _buffers[device] = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    _buffers[device].zero_()


def machine(device: torch.device) -> Machine:
    """Copy rate of 1 GiB and bf16 matmul rate at 8192 cubed (toy sizes on a CPU)."""
    on_gpu = device.type == "cuda"
    source = torch.ones(1 << 30 if on_gpu else 1 << 20, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), device)
    size = 8192 if on_gpu else 256
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    multiplied = seconds(lambda: a @ b, device)
    name = torch.cuda.get_device_name(device) if on_gpu else "cpu (rehearsal)"
    return Machine(device, name, 2 * source.numel() / copied, 2 * size**3 / multiplied)
