"""Trimming, as vLLM does it, and only when asked for."""

from __future__ import annotations

import pytest

from inkling_parsers import StreamParser, parse

CALL = '<|content_invoke_tool_json|>{"name":"f","args":{}}<|end_message|>'


@pytest.mark.parametrize(
    ("answer", "reasoning", "content"),
    [
        ("<|content_thinking|>\n plan \n\n<|end_message|>", "\n plan", None),
        ("<|content_thinking|> \n <|end_message|><|content_text|>x<|end_message|>", None, "x"),
        ("<|content_thinking|>a <|end_message|><|content_thinking|>b<|end_message|>", "ab", None),
        ("<|content_thinking|>cut  ", "cut", None),
        ("<|content_text|>\n\n<|end_message|>" + CALL, None, None),
        ("<|content_text|> \n <|end_message|>", None, " \n "),
        ("<|content_text|> a \n<|end_message|>" + CALL, None, " a \n"),
        (CALL + "<|content_text|>\n<|end_message|>", None, "\n"),
        ("<|content_text|> <|end_message|><|content_thinking|>b<|end_message|>" + CALL, "b", " "),
    ],
)
def test_values(answer, reasoning, content):
    trimmed = parse(answer, trim=True)
    assert (trimmed.reasoning, trimmed.content) == (reasoning, content)
    parser = StreamParser(trim=True)
    events = [event for char in answer for event in parser.feed(char)] + parser.finish()
    assert type(trimmed).collect(events, trimmed.termination) == trimmed


def test_off_by_default():
    assert parse("<|content_thinking|>a \n<|end_message|>").reasoning == "a \n"


def test_shown_text_is_not_held():
    parser = StreamParser(trim=True)
    events = parser.feed("<|content_thinking|>plan \n") + parser.feed("more")
    assert [e.text for e in events if hasattr(e, "text")] == ["plan", " \nmore"]
