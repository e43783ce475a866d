"""What is rendered parses back to itself, and what was parsed re-renders without stray markers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_parsers.check.splits import ByteVocabulary
from inkling_parsers.events import Termination
from inkling_parsers.markers import SPELLINGS, Marker
from inkling_parsers.parser import parse
from inkling_parsers.render import Segment, render

VOCABULARY = ByteVocabulary()
PROMPT = [VOCABULARY.special_ids["<|message_model|>"]]
LOOKALIKES = st.sampled_from(
    ["<|end_message|>", "<|message_model|>f", "<|", "{}", '"args":{', "\n"]
)
TEXT = st.one_of(st.text(max_size=20), LOOKALIKES, st.tuples(LOOKALIKES, LOOKALIKES).map("".join))
SPOKEN = TEXT.filter(bool)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
# The parser takes whitespace around a header for noise, and a second line for an answer.
NAMES = SPOKEN.filter(lambda name: name == name.strip() and "\n" not in name)
CALL = st.fixed_dictionaries(
    {"name": NAMES, "arguments": st.dictionaries(TEXT, VALUES, max_size=3)}
)


def turn(reasoning: Any, content: Any, calls: Any) -> dict[str, Any]:
    listed = [{"id": f"c{index}", "function": call} for index, call in enumerate(calls)]
    return {
        "role": "assistant",
        "reasoning": reasoning,
        "content": content,
        "tool_calls": listed,
    }


TURN = st.builds(turn, st.none() | SPOKEN, st.none() | SPOKEN, st.lists(CALL, max_size=3))


def ids_of(segments: Any) -> list[int]:
    return VOCABULARY.ids([list(segment) for segment in segments])


def answer(message: dict[str, Any], flavor: Any) -> list[int]:
    """The ids that a model would sample to say `message`."""
    rendered = render([message], effort=None, add_generation_prompt=False, flavor=flavor)
    return ids_of(rendered.segments)


@given(TURN, st.sampled_from(["vllm", "owner"]))
def test_a_rendered_turn_parses_back_to_itself(message: dict[str, Any], flavor: Any) -> None:
    said = message["reasoning"] or message["content"] or message["tool_calls"]
    ids = answer(message, flavor)
    if said and ids[0] == PROMPT[0]:
        ids = ids[1:]  # the role marker of the first block is the prompt's
    parsed = parse(ids, VOCABULARY.tokens, decode=VOCABULARY.decode, prompt=PROMPT)
    assert parsed.reasoning == message["reasoning"]
    assert parsed.content == message["content"]
    assert [
        {"name": call.name, "arguments": json.loads(call.arguments)} for call in parsed.tool_calls
    ] == [call["function"] for call in message["tool_calls"]]
    assert parsed.termination is Termination.STOP_TOKEN
    assert parsed.diagnostics == ()


@given(TURN)
def test_what_was_parsed_renders_to_the_same_ids(message: dict[str, Any]) -> None:
    ids = answer(message, "vllm")
    parsed = parse(ids, VOCABULARY.tokens, decode=VOCABULARY.decode)
    again = turn(
        parsed.reasoning,
        parsed.content,
        [{"name": call.name, "arguments": call.arguments} for call in parsed.tool_calls],
    )
    assert answer(again, "vllm") == ids


MARKERS = st.sampled_from([marker.value for marker in Marker if marker is not Marker.UNNAMED])
PLAIN = st.text(max_size=8).filter(lambda text: "<" not in text and "|" not in text)
PAYLOAD = st.sampled_from(['{"name":"f","args":{"a":1}}', '{"name":"g"', "{}"])
ANYTHING = st.lists(
    st.one_of(
        st.builds(Segment, st.just("s"), MARKERS),
        st.builds(Segment, st.just("t"), PLAIN | PAYLOAD),
    ),
    max_size=12,
)


@given(ANYTHING)
def test_a_history_of_any_answer_holds_only_the_renderers_markers(segments: Any) -> None:
    """Whatever special tokens a model sampled, none comes back as text of the next prompt."""
    parsed = parse(ids_of(segments), VOCABULARY.tokens, decode=VOCABULARY.decode)
    calls = [
        {"id": "c", "function": {"name": call.name, "arguments": json.loads(call.arguments)}}
        for call in parsed.tool_calls
        if call.valid
    ]
    message = {
        "role": "assistant",
        "reasoning": parsed.reasoning,
        "content": parsed.content,
        "tool_calls": [call for call in calls if isinstance(call["function"]["arguments"], dict)],
    }
    prompt = render([message, {"role": "user", "content": "next"}], effort=None)
    for kind, text in prompt.segments:
        found = [name for name in SPELLINGS if name in text]
        assert found == ([text] if kind == "s" else [])


@pytest.mark.parametrize("effort", [None, "none", "minimal", 0, 0.1])
def test_an_effort_without_thinking_parses_the_same(effort: Any) -> None:
    """The parser goes by what was sampled, not by what the prompt asked for."""
    prompt = ids_of(render([{"role": "user", "content": "x"}], effort=effort).segments)
    for head in ([], ["<|content_text|>"], ["<|content_thinking|>"]):
        sampled = ids_of(
            [*(("s", marker) for marker in head), ("t", "42"), ("s", "<|end_message|>")]
        )
        parsed = parse(sampled, VOCABULARY.tokens, decode=VOCABULARY.decode, prompt=prompt)
        thought = head == ["<|content_thinking|>"]
        assert (parsed.reasoning, parsed.content) == (("42", None) if thought else (None, "42"))
