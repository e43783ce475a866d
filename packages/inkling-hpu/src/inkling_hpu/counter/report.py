"""Counts as one JSON object, or as tables to read.

Not the counting and not prose: docs/backends/hpu-op-count.md explains the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from inkling_hpu.counter.layer_kinds import STEP
from inkling_hpu.counter.tally import Key, Sums, Tally


@dataclass(frozen=True)
class Counted:
    """One counted step: `layers` says how many layers of each kind the decoder has."""

    layers: Mapping[str, int]
    tally: Tally

    @property
    def kinds(self) -> list[str]:
        """Layer kinds in order, then the step level."""
        return [*self.layers, STEP]

    @property
    def parts(self) -> list[str]:
        """Parts, the one with most ops first."""
        found = self.tally.by("part")
        return [part for (part,) in sorted(found, key=lambda group: -found[group].ops)]

    def kind(self, kind: str) -> Sums:
        """All layers of one kind together."""
        return self.tally.total(lambda key: key.kind == kind)

    def part(self, part: str) -> Sums:
        """One part over the whole step."""
        return self.tally.total(lambda key: key.part == part)


def as_dict(counted: Counted) -> dict[str, Any]:
    """`ops`, `all_reduces`, `bytes` and the rest of `Sums`, then the same by layer kind, by part
    and by both; a layer kind also has its number of `layers`."""
    both = counted.tally.by("kind", "part")
    return {
        **asdict(counted.tally.total()),
        "layer_kinds": {
            kind: {"layers": counted.layers.get(kind, 0), **asdict(counted.kind(kind))}
            for kind in counted.kinds
        },
        "parts": {part: asdict(counted.part(part)) for part in counted.parts},
        "layer_kinds_parts": {
            kind: {part: asdict(sums) for (owner, part), sums in both.items() if owner == kind}
            for kind in counted.kinds
        },
    }


def print_tables(console: Console, columns: Mapping[str, Counted]) -> None:
    """Totals, layer kinds and parts of every column side by side."""
    console.print(_totals(columns))
    console.print(_by_kind(columns))
    console.print(_by_part(columns))


def print_detail(console: Console, counted: Counted) -> None:
    """Every op by name, views left out: where it is issued, how often, bytes."""
    table = _table(["layer kind", "part", "op"], ["ops", "all-reduces", "MB"])
    order = {name: place for place, name in enumerate(counted.kinds)}

    def rank(row: tuple[Key, Sums]) -> tuple[int, str, int]:
        return order[row[0].kind], row[0].part, -row[1].ops

    for key, sums in sorted(counted.tally.rows.items(), key=rank):
        if sums.ops or sums.all_reduces:
            megabytes = (sums.bytes + sums.all_reduce_bytes) / 1e6
            table.add_row(*key, str(sums.ops), str(sums.all_reduces), f"{megabytes:,.2f}")
    console.print(table)


def _totals(columns: Mapping[str, Counted]) -> Table:
    table = _table(["one decode step"], list(columns))
    totals = [counted.tally.total() for counted in columns.values()]
    for label, name in (("ops", "ops"), ("all-reduces", "all_reduces"), ("views", "views")):
        table.add_row(label, *(f"{getattr(total, name):,}" for total in totals))
    table.add_row("GB", *(f"{total.bytes / 1e9:.2f}" for total in totals))
    return table


def _by_kind(columns: Mapping[str, Counted]) -> Table:
    table = _table(["ops + all-reduces of one layer", "layers"], list(columns))
    first = next(iter(columns.values()))
    for kind in first.kinds:
        layers = first.layers.get(kind, 1)
        cells = [_per_layer(counted.kind(kind), layers) for counted in columns.values()]
        table.add_row(kind, str(first.layers.get(kind, "")), *cells)
    return table


def _per_layer(sums: Sums, layers: int) -> str:
    """`60 + 2`; with decimals where layers of one kind differ."""
    return f"{sums.ops / layers:g} + {sums.all_reduces / layers:g}"


def _by_part(columns: Mapping[str, Counted]) -> Table:
    table = _table(["ops by part"], list(columns))
    parts = list(dict.fromkeys(part for counted in columns.values() for part in counted.parts))
    for part in parts:
        table.add_row(part, *(f"{counted.part(part).ops:,}" for counted in columns.values()))
    return table


def _table(left: list[str], right: list[str]) -> Table:
    table = Table()
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table
