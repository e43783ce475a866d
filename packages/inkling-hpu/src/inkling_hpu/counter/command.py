"""`inkling bench ops`: counts one decode step by the rule and prints it.

Not the rule (`rule.py`) and not the step (`decode_step.py`). Nothing here needs a Gaudi, vLLM or
weights.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

import torch
from rich.console import Console

from inkling_core.config.named import config_of
from inkling_hpu.counter.decode_step import count_decode
from inkling_hpu.counter.report import Counted, as_dict, print_detail, print_tables
from inkling_hpu.counter.settings import BenchOpsSettings
from inkling_hpu.switches import VARIABLES, Switches

ADDED = {  # column -> the switch that it adds to the columns before it
    "single reduce": "single_reduce",
    "+ step hoist": "step_hoist",
    "+ conv hoist": "conv_hoist",
    "+ local SDPA": "local_sdpa",
    "+ shared in kernel": "shared_in_kernel",
}


def run(settings: BenchOpsSettings) -> int:
    """Tables or one JSON object on standard output; the JSON has the columns of the comparison
    under `columns`."""
    chosen = switches_of(settings, os.environ)
    wanted = _compared(chosen) if settings.compare else {}
    counted = {it: _count(settings, it) for it in {chosen, *wanted.values()}}
    first = counted[chosen]
    columns = {name: counted[switches] for name, switches in wanted.items()}
    if settings.format == "json":
        print(json.dumps(_document(settings, first, columns), indent=1))
        return 0
    console = Console()
    console.print(_title(settings), highlight=False)
    print_tables(console, columns or {"count": first})
    if settings.detail:
        print_detail(console, first)
    return 0


def switches_of(settings: BenchOpsSettings, environment: Mapping[str, str]) -> Switches:
    """The switches as set. ValueError where a variable of the environment says otherwise."""
    given = {name: getattr(settings, name) for name in ADDED.values()}
    outside = Switches.from_environment(environment)
    for name, value in given.items():
        variable = VARIABLES[name]
        if variable in environment and getattr(outside, name) != value:
            raise ValueError(
                f"{name}={str(value).lower()} contradicts {variable}={environment[variable]}: "
                "unset the variable or give the same value"
            )
    return replace(outside, **given)


def _count(settings: BenchOpsSettings, switches: Switches) -> Counted:
    return count_decode(
        config_of(settings.model),
        getattr(torch, settings.dtype),
        settings.tp,
        settings.streams,
        settings.context,
        switches,
    )


def _compared(chosen: Switches) -> dict[str, Switches]:
    columns = {"off": replace(chosen, **dict.fromkeys(ADDED.values(), False))}
    for column, name in ADDED.items():
        before = list(columns.values())[-1]
        columns[column] = replace(before, **{name: True})
    return columns


def _document(
    settings: BenchOpsSettings, first: Counted, columns: Mapping[str, Counted]
) -> dict[str, object]:
    asked = ("backend", "model", "tp", "streams", "context", "dtype")
    return {
        **{name: getattr(settings, name) for name in (*asked, *ADDED.values())},
        **as_dict(first),
        "columns": {name: as_dict(counted) for name, counted in columns.items()},
    }


def _title(settings: BenchOpsSettings) -> str:
    return (
        f"{settings.model} on {settings.backend}, tensor parallel {settings.tp}, "
        f"{settings.streams} x {settings.context:,} tokens, {settings.dtype}"
    )
