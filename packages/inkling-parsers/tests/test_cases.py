"""Every row of the package's own cases, and of the shared ones where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inkling_parsers.check import check_row, load_decisions

DATA = Path(__file__).parent / "data" / "answers.jsonl"
SHARED = Path(__file__).parents[4] / "shared" / "cases"
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
    """But those that need size (tested with payloads and headers) all occur in a row."""
    from inkling_parsers import Code

    met = {code for row in rows(DATA) for code in row.get("codes", ())}
    assert {code.value for code in Code} - met == {"header_too_long", "nesting_too_deep"}


@pytest.mark.parametrize("name", ["parser-cases", "render-cases", "owner-golden"])
def test_shared_cases(name):
    file = SHARED / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip(f"{file.name} is not beside this repository")
    failed = [outcome for row in rows(file) if not (outcome := check_row(row, DECISIONS)).passed]
    assert not failed, "\n".join(f"{o.row_id}\n{o.problems}" for o in failed)
