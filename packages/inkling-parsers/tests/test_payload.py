"""Payloads: what is held and for how long, nesting, repairs in streams; linear cost: test_work."""

from __future__ import annotations

import json
import time

import pytest

from inkling_parsers import StreamParser, parse
from inkling_parsers.doubt import MAX_HELD
from inkling_parsers.events import ArgumentsDelta, Code, RejectedDelta, ToolCallStart

OPEN, END = "<|content_invoke_tool_json|>", "<|end_message|>"


def arguments(events):
    return "".join(event.text for event in events if isinstance(event, ArgumentsDelta))


@pytest.mark.parametrize("depth", [1, 200, 999, 1000])
def test_nesting_to_the_limit_is_json(depth):
    inner = '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}" if depth > 1 else "{}"
    call = parse(f'{OPEN}{{"name":"f","args":{inner}}}{END}').tool_calls[0]
    assert (call.arguments, call.valid) == (inner, True)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_nesting_beyond_the_limit_has_a_diagnostic(size):
    inner = '{"a":' + "[" * 1000 + "]" * 1000 + "}"
    text = f'{OPEN}{{"name":"f","args":{inner}}}{END}'
    parser = StreamParser()
    events = [e for at in range(0, len(text), size) for e in parser.feed(text[at : at + size])]
    assert arguments(events) == inner
    codes = [event.code for event in events if hasattr(event, "code")]
    assert codes == [Code.NESTING_TOO_DEEP]


@pytest.mark.parametrize(
    ("inner", "valid"),
    [('{"a":1}', True), ('{"a":1,}', False), ('{"a":NaN}', False), ("[1", False), ("bare", False)],
)
def test_what_is_no_json_is_not_called_valid(inner, valid):
    parsed = parse(f'{OPEN}{{"name":"f","args":{inner}}}{END}')
    assert [call.valid for call in parsed.tool_calls] == [valid]
    assert valid or Code.ARGUMENTS_INVALID in {note.code for note in parsed.diagnostics}


def test_text_is_held_before_the_name_only():
    parser = StreamParser()
    assert not arguments(parser.feed(f'{OPEN}{{"args":{{"a":1}},"na'))
    late = parser.feed('me":"f"')
    assert isinstance(late[0], ToolCallStart) and arguments(late) == '{"a":1}'


def test_a_refused_payload_is_handed_on_as_it_comes():
    parser = StreamParser()
    parser.feed(f"{OPEN}{{'name'")
    assert parser.feed(" more") == [RejectedDelta(" more")]


def test_an_encoded_quote_holds_the_string_until_it_closes():
    parser = StreamParser()
    parser.feed(f'{OPEN}{{"name":"f","args":{{')
    assert arguments(parser.feed('"s":"a &quot;b')) == '"s":"a '
    assert arguments(parser.feed(" c")) == ""
    assert arguments(parser.feed('","t":1')) == '&quot;b c","t":'


def test_a_very_long_string_keeps_its_entities():
    body = "a &quot;" + "b" * MAX_HELD + ","
    for size in (1 << 20, 1000):
        parser = StreamParser()
        text = f'{OPEN}{{"name":"f","args":{{"s":"{body}'
        events = [e for at in range(0, len(text), size) for e in parser.feed(text[at : at + size])]
        assert arguments(events) == '{"s":"' + body


def test_many_strings_with_entities_are_read_once():
    """Each string asks a question of its own; the answers must not cost the rest each time."""
    items = ",".join('"&quot;x&quot;"' for _ in range(5000))
    text = f'{OPEN}{{"name":"f","args":{{"l":[{items}]}}}}{END}'
    start = time.process_time()
    call = parse(text).tool_calls[0]
    assert call.valid and len(json.loads(call.arguments)["l"]) == 5000
    assert time.process_time() - start < 2
