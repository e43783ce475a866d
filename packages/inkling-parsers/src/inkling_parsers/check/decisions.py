"""Reads `decisions.toml` and says which decision a row of a case file falls under.

Not where decisions are taken: the file holds them, the parser follows them, and this is only how
`check` explains a row. The file keeps to the part of TOML that Python 3.10 can read without help:
`[[decision]]`, and one `key = JSON string or list` per line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Decision:
    """One entry; the fields are explained at the head of the file."""

    topic: str
    choice: str
    reason: str
    row: str
    case: tuple[str, ...] = ()
    tag: str | None = None

    def covers(self, row: Mapping[str, Any]) -> bool:
        """Whether the row shows this question."""
        if self.tag is not None:
            return self.tag in row.get("tags", ())
        return any(fnmatchcase(row["id"], pattern) for pattern in self.case)


def load_decisions() -> tuple[Decision, ...]:
    """All entries, in the file's order."""
    source = resources.files("inkling_parsers").joinpath("decisions.toml")
    return tuple(
        Decision(**{**entry, "case": tuple(entry.get("case", ()))})
        for entry in read_entries(source.read_text(encoding="utf-8"))
    )


def read_entries(text: str) -> list[dict[str, Any]]:
    """The `[[decision]]` tables of `text`. Raises ValueError naming the line it cannot read."""
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line == "[[decision]]":
            entries.append({})
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            if not equals or not entries:
                raise ValueError(
                    f"decisions.toml line {number}: expected key = value, got {line!r}"
                )
            entries[-1][key.strip()] = json.loads(value)
    return entries
