"""The checker itself: it must see what is wrong, and say what was decided."""

from __future__ import annotations

import json

import pytest

from inkling_parsers.check import check_row, check_rows, load_decisions, report
from inkling_parsers.check.stream_checks import broken_conditions
from inkling_parsers.parser import StreamParser

DECISIONS = load_decisions()
EMPTY = {"reasoning": None, "content": None, "tool_calls": []}


def row(text: str, **expected):
    return {"id": "x1", "kind": "whole", "text": text, "expected": {**EMPTY, **expected}}


def test_a_wrong_value_fails_with_a_readable_difference():
    outcome = check_row(row("<|content_text|>a<|end_message|>", content="b"), DECISIONS)
    assert not outcome.passed
    assert '-  "content": "b",'.replace("  ", " ") in outcome.problems[0].replace("  ", " ")
    assert '+ "content": "a",' in outcome.problems[0]


def test_a_wrong_diagnostic_fails():
    wanted = row("<|content_text|>a<|end_message|>", content="a")
    assert check_row(wanted, DECISIONS).passed
    assert not check_row({**wanted, "codes": ["bare_text"]}, DECISIONS).passed


def test_trimmed_values_are_a_decision_and_listed():
    trimmed = row("<|content_thinking|>a \n<|end_message|>", reasoning="a")
    outcome = check_row(trimmed, DECISIONS)
    assert outcome.passed and outcome.decision and outcome.decision.topic == "whitespace"
    text, failed = report([outcome])
    assert failed == 0
    assert "rows: x1" in text and "reason: " in text
    assert text.splitlines()[-1] == "1 passed, 0 failed"
    untrimmed = row("<|content_thinking|>a \n<|end_message|>", reasoning="a ")
    assert not check_row(untrimmed, DECISIONS).passed


def test_a_split_that_changes_the_answer_is_seen(monkeypatch):
    """A parser that forgets what it held back passes whole and fails by characters."""
    from inkling_parsers.lexer import TextLexer

    monkeypatch.setattr(TextLexer, "_hold", lambda self, text, start: len(text))
    outcome = check_row(row("<|content_text|>a<|end_message|>", content="a"), DECISIONS)
    assert any("differs" in problem for problem in outcome.problems)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("content_after_chunk:2 startswith 'a'", True),
        ("content_after_chunk:1 startswith 'a'", False),
        ("content_after_chunk:3 == 'ab'", True),
        ("content_after_chunk:2 == 'ab'", False),
        ("no_marker_in_any_delta", True),
        ("arguments sent after the name is known", True),
    ],
)
def test_stream_conditions(condition, holds):
    chunks = ["<|content_text|>", "a", "b", "<|end_message|>"]
    problems = broken_conditions({"chunks": chunks, "checks": [condition]}, StreamParser)
    assert (not problems) is holds


def test_owner_rows():
    segments = [["s", "<|content_text|>"], ["t", "a"], ["s", "<|end_message|>"]]
    base = {"id": "P1", "kind": "parse", "segments": segments, "token_ids": [], "tags": []}
    message = {"author": "model", "name": None, "content": "Text", "text": "a"}
    assert check_row({**base, "expected": {"messages": [message]}}, DECISIONS).passed
    other = {**message, "text": "b"}
    assert not check_row({**base, "expected": {"messages": [other]}}, DECISIONS).passed
    assert not check_row({**base, "expected": {"messages": [message] * 2}}, DECISIONS).passed
    error = {"error_kind": "EmptyResponseError"}
    assert not check_row({**base, "expected": error}, DECISIONS).passed
    assert check_row({**base, "segments": [["t", "words"]], "expected": error}, DECISIONS).passed


def test_render_rows():
    base = {"id": "r1", "messages": [{"role": "user", "content": "a"}], "tools": None}
    base |= {"reasoning_effort": None, "add_generation_prompt": False}
    good = [["s", "<|message_user|>"], ["s", "<|content_text|>"], ["t", "a"]]
    good.append(["s", "<|end_message|>"])
    assert check_row({**base, "expected": {"segments": good}}, DECISIONS).passed
    assert not check_row({**base, "expected": {"segments": good[1:]}}, DECISIONS).passed
    assert not check_row({**base, "expected": {"error": "ValueError"}}, DECISIONS).passed


def test_lines_that_are_no_rows_are_named():
    with pytest.raises(ValueError, match="line 2 is no JSON"):
        list(check_rows([json.dumps({"kind": "meta", "id": "m"}), "{"]))
    with pytest.raises(ValueError, match="line 1 is no row"):
        list(check_rows(["[]"]))
    with pytest.raises(ValueError, match="unknown kind 'odd'"):
        list(check_rows(['{"id":"x","kind":"odd"}']))
