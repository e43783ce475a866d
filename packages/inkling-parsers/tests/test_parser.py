"""The public parser: its modes, its errors, prompts, and how answers end."""

from __future__ import annotations

import pytest

from inkling_parsers import SpecialTokens, StreamParser, Termination, parse
from inkling_parsers.check.splits import ByteVocabulary
from inkling_parsers.events import (
    ArgumentsDelta,
    BlockEnd,
    BlockStart,
    Code,
    ContentDelta,
    ToolCallEnd,
    ToolCallStart,
)

BYTES = ByteVocabulary()
ANSWER = (
    "<|content_text|>One moment.<|end_message|><|message_model|>f<|content_invoke_tool_json|>"
    '{"name":"f","args":{"a":1}}<|end_message|><|content_model_end_sampling|>'
)


def test_events_of_an_answer():
    assert list(parse(ANSWER).events) == [
        BlockStart("model", "text", ""),
        ContentDelta("One moment."),
        BlockEnd(True),
        BlockStart("model", "invoke_tool_json", "f"),
        ToolCallStart(0, "f"),
        ArgumentsDelta(0, '{"a":1}'),
        ToolCallEnd(0, True),
        BlockEnd(True),
    ]


def test_a_name_is_sent_before_its_arguments_and_those_as_they_come():
    parser = StreamParser()
    parser.feed('<|content_invoke_tool_json|>{"name":"f"')
    assert parser.feed(',"args":{"s":"ab') == [ArgumentsDelta(0, '{"s":"ab')]
    assert parser.feed("cd") == [ArgumentsDelta(0, "cd")]
    assert parser.feed('"}') == [ArgumentsDelta(0, '"}')]


def test_blocks_know_their_header_and_their_calls():
    text, call = parse(ANSWER).blocks
    assert (text.kind, text.text, text.calls, text.closed) == ("text", "One moment.", (), True)
    assert (call.kind, call.header, call.text, call.calls) == ("invoke_tool_json", "f", "", (0,))


@pytest.mark.parametrize(
    ("answer", "termination"),
    [
        (ANSWER, Termination.STOP_TOKEN),
        ("<|content_text|>x<|end_message|>", Termination.LENGTH),
        ("", Termination.LENGTH),
        ("<|content_text|>x<|end_message|><|message_model|>ge", Termination.LENGTH),
        ("<|content_text|>x", Termination.UNFINISHED_BLOCK),
        ("<|content_text|>x<|endoftext|>", Termination.STOP_TOKEN),
        (ANSWER.replace("1}", "1,}"), Termination.MALFORMED),
        (ANSWER.replace('{"name', "['name"), Termination.MALFORMED),
    ],
)
def test_termination(answer, termination):
    assert parse(answer).termination is termination


def test_a_stop_token_that_the_engine_kept():
    answer = "<|content_text|>x<|end_message|>"
    assert parse(answer, stopped=True).termination is Termination.STOP_TOKEN
    assert parse(ANSWER, stopped=True) == parse(ANSWER)


def test_ids_with_texts_equal_ids_with_decode():
    segments = [["s", "<|content_text|>"], ["t", "ab"], ["s", "<|end_message|>"]]
    ids = BYTES.ids(segments)
    by_texts = parse(ids, BYTES.tokens, texts=["?", "a", "b", "?"])
    assert by_texts == parse(ids, BYTES.tokens, decode=BYTES.decode)
    assert by_texts.content == "ab"


def test_a_prompt_of_ids_goes_on_where_it_stops():
    prompt = BYTES.ids([["s", "<|message_model|>"], ["t", "we"]])
    answer = BYTES.ids(
        [
            ["t", "ather"],
            ["s", "<|content_invoke_tool_json|>"],
            ["t", '{"args":{}}'],
            ["s", "<|end_message|>"],
        ]
    )
    parsed = parse(answer, BYTES.tokens, decode=BYTES.decode, prompt=prompt)
    assert [call.name for call in parsed.tool_calls] == ["weather"]
    nameless = parse(answer, BYTES.tokens, decode=BYTES.decode)
    assert [call.name for call in nameless.tool_calls] == ["ather"]


def test_a_prompt_may_end_in_half_a_marker():
    prompt = '<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{"s":"a <'
    parsed = parse('b"}}<|end_message|>', prompt=prompt)
    assert parsed.tool_calls[0].arguments == '{"s":"a <b"}'


def test_of_a_long_prompt_only_the_end_is_decoded():
    decoded: list[int] = []

    def decode(ids: list[int]) -> bytes:
        decoded.extend(ids)
        return BYTES.decode(ids)

    history = BYTES.ids([["s", "<|message_user|>"], ["s", "<|content_text|>"], ["t", "x" * 10_000]])
    end = BYTES.ids([["s", "<|end_message|>"], ["s", "<|message_model|>"]])
    StreamParser(BYTES.tokens, decode=decode, prompt=history + end)
    assert decoded == []


def test_header_limit():
    parser = StreamParser(header_limit=10)
    assert parser.feed("a" * 10) == []
    shown = parser.feed("b") + parser.feed("c")
    assert [event.text for event in shown if isinstance(event, ContentDelta)] == [
        "a" * 10 + "b",
        "c",
    ]
    assert any(getattr(event, "code", None) is Code.BARE_TEXT for event in shown)


@pytest.mark.parametrize(
    ("held", "shown", "text"),
    [
        ("Hello there.", "", None),
        ("Hello there.\n", "", None),
        ("Hello there.\n\n", "Then", "Hello there.\n\nThen"),
        ("\n get_weather \n", "", None),
        ("\n\n Hello", "\n\nx", "\n\n Hello\n\nx"),
        ("get_weather\r\n", "\nx", "get_weather\r\n\nx"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_bare_answer_is_shown_from_its_second_line_on(held, shown, text, size):
    parser = StreamParser()
    for at in range(0, len(held), size):
        assert parser.feed(held[at : at + size]) == []
    events = [event for letter in shown for event in parser.feed(letter)]
    said = "".join(event.text for event in events if isinstance(event, ContentDelta))
    assert said == (text or "")
    if text is None:
        call = parser.feed('<|content_invoke_tool_json|>{"name":"g","args":{}}<|end_message|>')
        assert call[0] == BlockStart("model", "invoke_tool_json", held)


def test_a_prompt_without_markers_opens_no_block():
    answer = "<|content_text|>hi<|end_message|>"
    for prompt in ("User: hi\nAssistant:", "x" * 5000):
        parsed = parse(answer, prompt=prompt)
        assert (parsed.content, parsed.diagnostics) == ("hi", ())


def test_tool_choice_none_refuses_calls_only():
    parsed = parse(ANSWER, tool_choice="none")
    assert (parsed.content, parsed.tool_calls) == ("One moment.", ())
    assert parsed.blocks[1].text == '{"name":"f","args":{"a":1}}'
    named = {"type": "function", "function": {"name": "g"}}
    assert parse(ANSWER, tool_choice=named) == parse(ANSWER)


def test_wrong_use_is_said_to_be_wrong():
    with pytest.raises(TypeError, match="feed ids"):
        StreamParser(BYTES.tokens).feed("text")
    with pytest.raises(TypeError, match="no tokens="):
        StreamParser().feed([1])
    with pytest.raises(TypeError, match="prompt is ids"):
        StreamParser(prompt=[1])
    parser = StreamParser()
    parser.finish()
    assert parser.finish() == []
    with pytest.raises(ValueError, match="was finished"):
        parser.feed("x")


def test_call_indices_count_on():
    call = '<|content_invoke_tool_json|>{"name":"f"}<|end_message|>'
    bad = "<|content_invoke_tool_json|>nothing<|end_message|>"
    starts = [e.index for e in parse(call + bad + call).events if isinstance(e, ToolCallStart)]
    assert starts == [0, 1]


def test_public_names():
    import inkling_parsers

    assert SpecialTokens in vars(inkling_parsers).values()
    assert all(hasattr(inkling_parsers, name) for name in inkling_parsers.__all__)
