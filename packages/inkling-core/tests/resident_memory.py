"""Measures, in a process of its own, the memory that loading a checkpoint takes beyond its start.

    python resident_memory.py FOLDER load|stream DTYPE [pack]
    -> bytes at the peak, bytes of the largest weight handed out, bytes of all of them

Counted is anonymous memory: mapped file pages are the page cache's. Freed blocks have to go back at
once (`MALLOC_MMAP_THRESHOLD_`, see `measure`), so that what is measured is what is held.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from inkling_core.config import InklingConfig
from inkling_core.weights import load, stream


def measure(folder: Path, *arguments: str) -> tuple[int, int, int]:
    """Runs this file; see above."""
    run = subprocess.run(
        [sys.executable, __file__, str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"},
    )
    peak, largest, total = map(int, run.stdout.split())
    return peak, largest, total


def resident() -> int:
    with open("/proc/self/statm") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * 4096


class Watch(threading.Thread):
    """The largest `resident` seen between its start and `stop`."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self.done = 0, False

    def look(self) -> None:
        self.peak = max(self.peak, resident())

    def run(self) -> None:
        while not self.done:
            self.look()
            time.sleep(0.0005)

    def stop(self) -> None:
        self.done = True
        self.join()


def pay_first_use(folder: str, config: InklingConfig, options: dict[str, Any]) -> None:
    """What the libraries take once: a product, and reading up to an expert weight."""
    torch.randn(8, 8) @ torch.randn(8, 8)
    for name, _ in stream(folder, config, **options):
        if name.endswith("experts.w2_weight"):
            return


def main(folder: str, mode: str, dtype_name: str, *pack: str) -> None:
    config = InklingConfig.from_checkpoint(folder)
    options = {"dtype": getattr(torch, dtype_name), "progress": "off", "pack_experts": bool(pack)}
    pay_first_use(folder, config, options)
    watch, base = Watch(), resident()
    watch.start()
    largest = total = 0
    if mode == "load":
        held = load(folder, config, **options)
        watch.look()  # all of it is there; the thread alone may not run in time to see it
        total = sum(one.nbytes for one in held.values())
    else:
        for _, tensor in stream(folder, config, **options):
            largest, total = max(largest, tensor.nbytes), total + tensor.nbytes
            watch.look()
            del tensor
    watch.stop()
    print(watch.peak - base, largest, total)


if __name__ == "__main__":
    main(*sys.argv[1:])
