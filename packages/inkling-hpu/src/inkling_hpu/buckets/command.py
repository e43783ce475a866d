"""`inkling buckets`: the graphs of one or more profiles, whether they cover every shape, and the
padding and the warm-up that they cost.

Not the rules (coverage.py). Exit status 1 where a shape is uncovered or padded more than allowed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from inkling_hpu.buckets import file
from inkling_hpu.buckets.coverage import (
    Coverage,
    Worst,
    decode_coverage,
    loaded,
    prefill_coverage,
    unwarmed,
)
from inkling_hpu.buckets.generate import Buckets, generate
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.buckets.settings import BucketsSettings

PHASES = ("prefill", "decode")


def run(settings: BucketsSettings) -> int:
    """Prints what `format` says; the exit status."""
    found = [(profile, _buckets(settings, profile)) for profile in settings.profiles()]
    if settings.format == "file":
        print(file.text(found[0][1]), end="")
        return 0
    reports = [report(*one, settings.seconds_per_graph) for one in found]
    if settings.format == "json":
        print(json.dumps(reports, indent=1))
    else:
        _print(Console(), settings, reports)
    return 0 if all(one["ok"] for one in reports) else 1


def report(profile: Profile, buckets: Buckets, seconds_per_graph: float) -> dict[str, Any]:
    """One profile as plain values. `ok`: nothing missing, every graph warmed, no padding above the
    percentage."""
    cold = unwarmed(profile, buckets)
    covered = {
        "prefill": prefill_coverage(profile, buckets),
        "decode": decode_coverage(profile, buckets),
    }
    return {
        "max_model_len": profile.max_model_len,
        "max_num_seqs": profile.max_num_seqs,
        "chunk": profile.chunk,
        "graphs": {"prefill": len(buckets.prefill), "decode": len(buckets.decode)},
        "warm_up_minutes": round(len(buckets) * seconds_per_graph / 60, 1),
        **{phase: _values(coverage) for phase, coverage in covered.items()},
        "unwarmed": cold,
        "ok": not cold and all(one.holds(profile.padding_percent) for one in covered.values()),
    }


def _values(coverage: Coverage) -> dict[str, Any]:
    return {
        "missing": list(coverage.missing),
        "worst_padding": {"rows": _worst(coverage.rows), "blocks": _worst(coverage.blocks)},
    }


def _worst(worst: Worst) -> dict[str, Any]:
    percent = None if worst.percent is None else round(float(worst.percent), 2)
    return {"percent": percent, "shape": worst.shape, "bucket": worst.bucket}


def _buckets(settings: BucketsSettings, profile: Profile) -> Buckets:
    if settings.check:
        return loaded(profile, file.read(Path(settings.check)))
    return generate(profile)


def _print(console: Console, settings: BucketsSettings, reports: list[dict[str, Any]]) -> None:
    table = Table(title=f"{settings.max_num_seqs} requests, chunks of {settings.chunk}")
    for heading in ("context", "graphs", "warm-up", "prefill padding %", "decode padding %"):
        table.add_column(heading, justify="right")
    table.add_column("without a graph")
    for one in reports:
        table.add_row(*_cells(one))
    console.print(table)
    console.print(
        "graphs: prefill + decode\n"
        f"warm-up: {settings.seconds_per_graph:g} s a graph, assumed (seconds_per_graph)\n"
        "padding: worst of query tokens, cached blocks; of requests, KV blocks; counted above "
        f"{settings.smallest_query}, {settings.smallest_context}; 1, {settings.smallest_decode}",
        highlight=False,
    )


def _cells(one: dict[str, Any]) -> list[str]:
    graphs = " + ".join(str(one["graphs"][phase]) for phase in PHASES)
    padding = [_percents(one[phase]["worst_padding"]) for phase in PHASES]
    missing = [*one["prefill"]["missing"], *one["decode"]["missing"], *one["unwarmed"]]
    gap = f"{len(missing)}, first {missing[0]}" if missing else "none"
    return [f"{one['max_model_len']:,}", graphs, f"{one['warm_up_minutes']:g} min", *padding, gap]


def _percents(worst: dict[str, Any]) -> str:
    found = [worst[dimension]["percent"] for dimension in ("rows", "blocks")]
    return ", ".join("no limit" if percent is None else f"{percent:g}" for percent in found)
