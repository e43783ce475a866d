"""Holds the package to files of cases: `python -m inkling_parsers check FILE.jsonl`.

Not a test suite: it reads rows that others wrote (and that users may write), one JSON object per
line, and says for each whether parser and renderer agree with it. Kinds of rows:

    parser rows   segments or chunks, expected reasoning/content/tool_calls   `parser_rows`
    parse rows    token_ids, expected messages or error of the model owner     `owner_rows`
    render rows   messages, expected segments or error                         `render_rows`

Where rows contradict each other or this package's rulings, `decisions.toml` says what we do; such
rows pass when they match the decision, and are listed with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inkling_parsers.check.decisions import Decision, load_decisions
from inkling_parsers.check.outcome import Outcome, report
from inkling_parsers.check.owner_rows import check_owner_row
from inkling_parsers.check.parser_rows import check_parser_row
from inkling_parsers.check.render_rows import check_render_row
from inkling_parsers.check.tokenizer import Tokenizer

__all__ = ["Outcome", "Tokenizer", "check_row", "check_rows", "load_decisions", "report"]


def check_rows(lines: Iterable[str], tokenizer: Tokenizer | None = None) -> Iterator[Outcome]:
    """Check rows given as lines of JSON. Raises ValueError naming a line that is no row."""
    decisions = load_decisions()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from None
        if not isinstance(row, dict) or "id" not in row:
            raise ValueError(f"line {number} is no row: an object with an id was expected")
        if row.get("kind") != "meta":
            yield check_row(row, decisions, tokenizer)


def check_row(
    row: Mapping[str, Any],
    decisions: Iterable[Decision],
    tokenizer: Tokenizer | None = None,
) -> Outcome:
    """Check one row of any kind. Raises ValueError for a row of no known kind."""
    covering = [decision for decision in decisions if decision.covers(row)]
    if "messages" in row:
        return check_render_row(row, _not_trimming(covering), tokenizer)
    if row.get("kind") == "parse":
        return check_owner_row(row, _not_trimming(covering), tokenizer)
    if row.get("kind") in ("whole", "stream") and "expected" in row:
        return check_parser_row(row, covering)
    raise ValueError(
        f"row {row['id']!r}: unknown kind {row.get('kind')!r}; "
        "known are whole, stream, parse, and rows with messages"
    )


def _not_trimming(decisions: list[Decision]) -> list[Decision]:
    """Whitespace is a question of parser rows alone."""
    return [decision for decision in decisions if decision.row != "trim"]
