"""`inkling bench masks`: masks of a prefill chunk by context, with the switches off and on.

Not the counting (`prefill_chunk.py`). Nothing here needs a Gaudi, vLLM or weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import torch
from rich.console import Console
from rich.table import Table

from inkling_core.config.named import config_of
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.counter.prefill_chunk import ChunkCount, count_chunk
from inkling_hpu.counter.settings import BenchMasksSettings
from inkling_hpu.switches import Switches

VARIANTS = {
    "whole context": Switches(local_window_prefill=False, near_far=False),
    "local window": Switches(near_far=False),
    "near and far": Switches(),
}
MIB = 2**20


def run(settings: BenchMasksSettings) -> int:
    """Tables or one JSON object on standard output."""
    config, dtype = config_of(settings.model), getattr(torch, settings.dtype)
    profile = Profile(settings.max_model_len, chunk=settings.chunk)
    found = {
        name: [
            count_chunk(config, dtype, settings.tp, profile, context, switches)
            for context in settings.context
        ]
        for name, switches in VARIANTS.items()
    }
    if settings.format == "json":
        asked = {**asdict(settings), "context": list(settings.context)}
        columns = {name: [asdict(one) for one in counts] for name, counts in found.items()}
        print(json.dumps({**asked, "columns": columns}, indent=1))
        return 0
    _print(Console(), settings, found)
    return 0


def _print(
    console: Console, settings: BenchMasksSettings, found: dict[str, list[ChunkCount]]
) -> None:
    console.print(
        f"{settings.model}, tensor parallel {settings.tp}, a chunk of {settings.chunk:,} tokens, "
        f"{settings.dtype}",
        highlight=False,
    )
    table = Table()
    for heading in ("masks", "context", "GB", "largest MiB", "calls", "ops", "GB moved"):
        table.add_column(heading, justify="left" if heading == "masks" else "right")
    for name, counts in found.items():
        for one in counts:
            table.add_row(
                name,
                f"{one.context:,}",
                f"{one.mask_bytes / 1e9:.2f}",
                f"{one.largest_mask / MIB:.1f}",
                f"{one.calls:,}",
                f"{one.ops:,}",
                f"{one.moved / 1e9:.2f}",
            )
        table.add_section()
    console.print(table)
    console.print(
        "GB, largest MiB: masks given to attention kernels, one that is shared counted once\n"
        "calls: of those kernels; ops: those, index math, masks and merging\n"
        "GB moved: operands and results of the ops that make masks",
        highlight=False,
    )
