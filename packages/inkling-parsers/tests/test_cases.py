"""Every row of the package's own cases, and of the shared ones where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inkling_parsers.check import check_row, load_decisions

DATA = Path(__file__).parent / "data" / "answers.jsonl"
RECORDED = Path(__file__).parent / "cases"
PARSER_CASES = Path(__file__).parents[4] / "shared" / "cases" / "parser-cases.jsonl"
DECISIONS = load_decisions()


def rows(file: Path) -> list[dict]:
    lines = file.read_text(encoding="utf-8").split("\n")
    found = [json.loads(line) for line in lines if line]
    return [row for row in found if row.get("kind") != "meta"]


@pytest.mark.parametrize("row", rows(DATA), ids=lambda row: row["id"])
def test_own_case(row):
    outcome = check_row(row, DECISIONS)
    assert outcome.passed, "\n".join(outcome.problems)


def test_own_cases_meet_every_diagnostic():
    """But the one that needs size, which is tested with payloads."""
    from inkling_parsers import Code

    met = {code for row in rows(DATA) for code in row.get("codes", ())}
    assert {code.value for code in Code} - met == {"nesting_too_deep"}


@pytest.mark.parametrize(
    "file", [*sorted(RECORDED.glob("*.jsonl")), PARSER_CASES], ids=lambda file: file.stem
)
def test_recorded_cases(file):
    if file == PARSER_CASES and not file.is_file():
        pytest.skip(f"{file.name} is not beside this repository")
    failed = [outcome for row in rows(file) if not (outcome := check_row(row, DECISIONS)).passed]
    assert not failed, "\n".join(f"{o.row_id}\n{o.problems}" for o in failed)
