"""Rows of kind `parse`: what the model owner's parser makes of token ids.

Parsed with strict=True, by ids and under every split of ids; the messages must be the row's, or
the error must be of the row's kind. Serving mode must survive the row too, with the same events
for every split. With a tokenizer the row's own `token_ids` are parsed as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from inkling_parsers.check.decisions import Decision
from inkling_parsers.check.outcome import Outcome, difference
from inkling_parsers.check.owner import by_value, comparable, owner_messages, respelled
from inkling_parsers.check.splits import ByteVocabulary, id_splits
from inkling_parsers.check.tokenizer import Tokenizer
from inkling_parsers.detokenize import Decode
from inkling_parsers.events import Event
from inkling_parsers.markers import SpecialTokens
from inkling_parsers.parser import StreamParser
from inkling_parsers.result import Parsed
from inkling_parsers.strict import ParseError, ToolSchemaError, UnknownContentTypeError

_VOCABULARY = ByteVocabulary()


def check_owner_row(
    row: Mapping[str, Any], decisions: list[Decision], tokenizer: Tokenizer | None
) -> Outcome:
    """Parse one row strictly, and hold it to its messages, its error, or a decision."""
    outcome = Outcome(row["id"])
    rules = [decision.row for decision in decisions]
    wanted, numbers = _wanted(row, rules), "numbers" in rules
    if wanted != row["expected"] or decisions:
        outcome.decision = decisions[-1] if decisions else None
    ids = _VOCABULARY.ids(row["segments"])
    sources: list[tuple[list[int], SpecialTokens, Decode, str]] = [
        (ids, _VOCABULARY.tokens, _VOCABULARY.decode, "")
    ]
    if tokenizer is not None:
        sources.append((row["token_ids"], tokenizer.tokens, tokenizer.decode, "tokenizer, "))
    for ids, tokens, decode, prefix in sources:
        for name, deltas in id_splits(ids, row["id"]):
            got = _strict_result(deltas, tokens, decode)
            problem = _compare(got, wanted, numbers, prefix + name)
            if problem:
                outcome.problems.append(problem)
                return outcome
    outcome.problems += _serving_problems(row)
    return outcome


def _wanted(row: Mapping[str, Any], rules: list[str]) -> Mapping[str, Any]:
    for rule in rules:
        if rule.startswith("error ") and "messages" in row["expected"]:
            return {"error_kind": rule.removeprefix("error ")}
    return row["expected"]


def _run(parser: StreamParser, deltas: list[list[int]]) -> Parsed:
    events: list[Event] = []
    for delta in deltas:
        events += parser.feed(delta)
    events += parser.finish()
    assert parser.termination is not None
    return Parsed.collect(events, parser.termination)


def _strict_result(
    deltas: list[list[int]], tokens: SpecialTokens, decode: Decode
) -> dict[str, Any]:
    try:
        parsed = _run(StreamParser(tokens, decode=decode, strict=True), deltas)
    except ParseError as error:
        result: dict[str, Any] = {"error_kind": error.kind, "message": str(error)}
        if isinstance(error, ToolSchemaError):
            result["field"] = error.field
        if isinstance(error, UnknownContentTypeError):
            result["tag"] = error.tag
        return result
    return {"messages": owner_messages(parsed)}


def _compare(
    got: dict[str, Any], wanted: Mapping[str, Any], numbers: bool, name: str
) -> str | None:
    """What is different, or None. Of an error count its kind and the field or tag it names."""
    if "messages" in wanted and "messages" in got:
        left = comparable(respelled(wanted["messages"]), wanted["messages"])
        right = comparable(got["messages"], wanted["messages"])
        if numbers:
            left, right = (json.loads(by_value(json.dumps(side))) for side in (left, right))
        return None if left == right else difference(left, right, name)
    attributes = wanted.get("attrs", {})
    expected = {"error_kind": wanted.get("error_kind")}
    expected.update({key: attributes[key] for key in ("field", "tag") if key in attributes})
    seen = {key: got.get(key) for key in expected}
    return None if seen == expected and "messages" not in wanted else difference(wanted, got, name)


def _serving_problems(row: Mapping[str, Any]) -> list[str]:
    results: list[tuple[str, Parsed]] = []
    for name, deltas in id_splits(_VOCABULARY.ids(row["segments"]), row["id"]):
        parser = StreamParser(_VOCABULARY.tokens, decode=_VOCABULARY.decode)
        results.append((name, _run(parser, deltas)))
    whole = results[0][1]
    return [
        f"serving mode: {name} differs from the whole"
        for name, parsed in results
        if parsed.events != whole.events
    ]
