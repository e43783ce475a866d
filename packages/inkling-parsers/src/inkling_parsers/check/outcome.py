"""What became of one row, and a difference that a person can read."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from inkling_parsers.check.decisions import Decision


@dataclass
class Outcome:
    """One row: it passed unless there are problems; `decision` explains it if one does."""

    row_id: str
    problems: list[str] = field(default_factory=list)
    decision: Decision | None = None

    @property
    def passed(self) -> bool:
        return not self.problems


def difference(wanted: Any, got: Any, title: str) -> str:
    """A unified difference of two JSON values, one member per line."""
    lines = difflib.unified_diff(
        _pretty(wanted), _pretty(got), "expected", f"got ({title})", lineterm="", n=2
    )
    return "\n".join(lines)


def _pretty(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=1, default=repr).splitlines()


def report(outcomes: Iterable[Outcome]) -> tuple[str, int]:
    """The text that `check` prints, and how many rows failed."""
    outcomes = list(outcomes)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    lines = [*_decided(outcomes)]
    for outcome in failed:
        lines += [
            f"FAILED {outcome.row_id}",
            *("  " + p.replace("\n", "\n  ") for p in outcome.problems),
        ]
    lines.append(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return "\n".join(lines), len(failed)


def _decided(outcomes: list[Outcome]) -> list[str]:
    """Each decision with the rows that it covers."""
    rows: dict[Decision, list[str]] = {}
    for outcome in outcomes:
        if outcome.passed and outcome.decision is not None:
            rows.setdefault(outcome.decision, []).append(outcome.row_id)
    lines: list[str] = []
    for decision, ids in rows.items():
        lines += [f"decided: {decision.topic}", f"  choice: {decision.choice}"]
        lines += [f"  reason: {decision.reason}", f"  rows: {', '.join(ids)}"]
    return lines
