"""Sums of counted ops by layer kind, part and op name.

Not the rule and not a table to look at (`report.py` makes those).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Key(NamedTuple):
    """Where an op was issued and what it was."""

    kind: str
    part: str
    op: str


@dataclass
class Sums:
    """`ops`: weight 1, all-reduces left out; `all_reduces`; `views`: weight 0; `bytes`: of the
    ops; `all_reduce_bytes`."""

    ops: int = 0
    all_reduces: int = 0
    views: int = 0
    bytes: int = 0
    all_reduce_bytes: int = 0

    def __iadd__(self, other: Sums) -> Sums:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass
class Tally:
    """All counts of one run."""

    rows: defaultdict[Key, Sums] = field(default_factory=lambda: defaultdict(Sums))

    def total(self, chosen: Callable[[Key], bool] = lambda key: True) -> Sums:
        """The sum over the rows that are `chosen`."""
        return _sum(sums for key, sums in self.rows.items() if chosen(key))

    def by(self, *names: str) -> dict[tuple[str, ...], Sums]:
        """Sums by one or more fields of `Key`, in the order in which they first appeared."""
        groups: dict[tuple[str, ...], Sums] = {}
        for key, sums in self.rows.items():
            group = tuple(getattr(key, name) for name in names)
            groups.setdefault(group, Sums()).__iadd__(sums)
        return groups


def _sum(values: Iterable[Sums]) -> Sums:
    total = Sums()
    for value in values:
        total += value
    return total
