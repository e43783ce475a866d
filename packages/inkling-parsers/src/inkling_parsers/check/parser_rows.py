"""Rows that say what an answer means: `segments` or `chunks`, and `expected`.

Each is parsed whole and under every split, by ids and (unless `needs_token_ids`) by text; all
must give the same events, and the expected value. Rows of kind `stream` bring their own chunks
and conditions (`stream_checks`). A row may list the diagnostics that it wants as `codes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inkling_parsers.check.decisions import Decision
from inkling_parsers.check.outcome import Outcome, difference
from inkling_parsers.check.splits import (
    ByteVocabulary,
    Segments,
    id_splits,
    prompt_segments,
    text_splits,
)
from inkling_parsers.check.stream_checks import broken_conditions
from inkling_parsers.events import Event
from inkling_parsers.lexer import TextLexer
from inkling_parsers.markers import SPELLINGS
from inkling_parsers.parser import StreamParser
from inkling_parsers.result import Parsed

_VOCABULARY = ByteVocabulary()


def check_parser_row(row: Mapping[str, Any], decisions: list[Decision]) -> Outcome:
    """Parse one row in every way, and hold it to its value or to a decision."""
    outcome = Outcome(row["id"])
    runs = list(_runs(row, trim=False))
    outcome.problems += _disagreements(runs)
    if "chunks" in row:
        outcome.problems += broken_conditions(row, lambda: _stream_parser(row, by_ids=False))
    if not _spells_markers(row):
        outcome.problems += [p for name, parsed in runs[:1] for p in _leaks(name, parsed)]
    name, parsed = runs[0]
    codes = [diagnostic.code.value for diagnostic in parsed.diagnostics]
    if row.get("codes", codes) != codes:
        outcome.problems.append(difference(row["codes"], codes, f"diagnostics, {name}"))
    got = value_of(parsed)
    if got == row["expected"]:
        outcome.decision = next((d for d in decisions if d.row == "stands"), None)
        return outcome
    trimming = next((d for d in decisions if d.row == "trim"), None)
    if trimming is not None:
        trimmed = list(_runs(row, trim=True))
        if all(value_of(parsed) == row["expected"] for _, parsed in trimmed):
            outcome.decision = trimming
            return outcome
    outcome.problems.append(difference(row["expected"], got, name))
    outcome.problems.append(
        f"diagnostics: {', '.join(codes) or 'none'}; ended by {parsed.termination.value}"
    )
    return outcome


def value_of(parsed: Parsed) -> dict[str, Any]:
    """The value that rows expect."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in parsed.tool_calls]
    return {"reasoning": parsed.reasoning, "content": parsed.content, "tool_calls": calls}


def segments_of(row: Mapping[str, Any]) -> Segments:
    """The row's segments, those of its chunks in one, or else those that its text spells."""
    if "segments" in row:
        return row["segments"]
    if "chunk_segments" not in row:
        lexer = TextLexer()
        pieces = lexer.feed(row["text"]) + lexer.finish()
        return [["t" if marker is None else "s", text] for marker, text in pieces]
    return [segment for chunk in row["chunk_segments"] for segment in chunk]


def _runs(row: Mapping[str, Any], trim: bool) -> Iterator[tuple[str, Parsed]]:
    """(name of the split, result), whole by ids first."""
    for name, deltas in id_splits(_VOCABULARY.ids(segments_of(row)), row["id"]):
        yield name, _collect(_stream_parser(row, by_ids=True, trim=trim), deltas)
    if row.get("needs_token_ids"):
        return
    for name, texts in text_splits(row["text"], row["id"]):
        yield name, _collect(_stream_parser(row, by_ids=False, trim=trim), texts)
    if "chunks" in row:
        parser = _stream_parser(row, by_ids=False, trim=trim)
        yield "text, the row's chunks", _collect(parser, row["chunks"])


def _stream_parser(row: Mapping[str, Any], by_ids: bool, trim: bool = False) -> StreamParser:
    tail = prompt_segments(row.get("prompt_tail") or ())
    choice = row.get("tool_choice")
    if by_ids:
        return StreamParser(
            _VOCABULARY.tokens,
            decode=_VOCABULARY.decode,
            prompt=_VOCABULARY.ids(tail),
            trim=trim,
            tool_choice=choice,
        )
    return StreamParser(prompt="".join(text for _, text in tail), trim=trim, tool_choice=choice)


def _collect(parser: StreamParser, deltas: list[str] | list[list[int]]) -> Parsed:
    events: list[Event] = []
    for delta in deltas:
        events += parser.feed(delta)
    events += parser.finish()
    assert parser.termination is not None
    return Parsed.collect(events, parser.termination)


def _disagreements(runs: list[tuple[str, Parsed]]) -> list[str]:
    """Runs whose events differ from those of the first of the same mode, or in value at all."""
    problems: list[str] = []
    first: dict[str, Parsed] = {}
    for name, parsed in runs:
        whole = first.setdefault(name.split(",")[0], parsed)
        if parsed.events != whole.events:
            problems.append(f"{name} differs from the whole\n{_events(whole, parsed, name)}")
        elif value_of(parsed) != value_of(runs[0][1]):
            values = value_of(runs[0][1]), value_of(parsed)
            problems.append(f"{name} differs from {runs[0][0]}\n{difference(*values, name)}")
    return problems[:3]


def _events(whole: Parsed, parsed: Parsed, name: str) -> str:
    return difference([repr(e) for e in whole.events], [repr(e) for e in parsed.events], name)


def _spells_markers(row: Mapping[str, Any]) -> bool:
    """Whether ordinary text of the row spells a marker, which then passes."""
    ordinary = "\n".join(text for kind, text in segments_of(row) if kind == "t")
    return any(name in ordinary for name in SPELLINGS)


def _leaks(name: str, parsed: Parsed) -> list[str]:
    shown = [parsed.reasoning or "", parsed.content or ""]
    shown += [part for call in parsed.tool_calls for part in (call.name, call.arguments)]
    return [
        f"{name}: the marker {marker} became text"
        for marker in SPELLINGS
        if any(marker in text for text in shown)
    ]
