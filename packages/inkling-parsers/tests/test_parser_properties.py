"""Properties of the parser over generated transcripts:

* any split gives the events of the whole, by ids (through the middle of characters) and by text
* no special id becomes text: only ordinary text comes out
* nothing but typed errors, and in serving mode none at all
* `valid` means JSON, and what is not JSON has its diagnostic
* state is bounded, whatever the length of text or arguments
"""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_transcripts import (
    EDGES,
    JSON_TEXTS,
    SEGMENTS,
    VOCABULARY,
    cut,
    spell,
)

from inkling_parsers import Parsed, ParseError, StreamParser, Termination, parse
from inkling_parsers.events import (
    ArgumentsDelta,
    Code,
    ContentDelta,
    Event,
    ForeignDelta,
    ReasoningDelta,
    RejectedDelta,
    ToolCallStart,
    ToolErrorDelta,
    ToolTextDelta,
)
from inkling_parsers.lexer import TextLexer

DELTAS = (
    ReasoningDelta,
    ContentDelta,
    ToolTextDelta,
    ToolErrorDelta,
    ForeignDelta,
    ArgumentsDelta,
    RejectedDelta,
)
EXAMPLES = settings(max_examples=int(os.environ.get("INKLING_EXAMPLES", "50")), deadline=None)


def by_ids(**options: Any) -> StreamParser:
    return StreamParser(VOCABULARY.tokens, decode=VOCABULARY.decode, **options)


def run(parser: StreamParser, deltas: list[Any]) -> Parsed:
    events: list[Event] = []
    for delta in deltas:
        events += parser.feed(delta)
    events += parser.finish()
    assert parser.termination is not None
    return Parsed.collect(events, parser.termination)


@EXAMPLES
@given(SEGMENTS, EDGES, st.booleans())
def test_any_split_of_ids_gives_the_events_of_the_whole(segments, edges, trim):
    ids = VOCABULARY.ids(segments)
    whole = run(by_ids(trim=trim), [ids])
    pieces = [ids[a:b] for a, b in cut(len(ids), edges)]
    assert run(by_ids(trim=trim), pieces) == whole
    assert run(by_ids(trim=trim), [[id_] for id_ in ids]) == whole


@EXAMPLES
@given(SEGMENTS, EDGES, st.booleans())
def test_any_split_of_text_gives_the_events_of_the_whole(segments, edges, trim):
    text = spell(segments)
    whole = run(StreamParser(trim=trim), [text])
    pieces = [text[a:b] for a, b in cut(len(text), edges)]
    assert run(StreamParser(trim=trim), pieces) == whole
    assert run(StreamParser(trim=trim), list(text)) == whole


@EXAMPLES
@given(SEGMENTS)
def test_text_and_ids_agree_where_no_text_spells_a_marker(segments):
    ordinary = "\n".join(text for kind, text in segments if kind == "t")
    joined = "".join("\n" if kind == "s" else text for kind, text in segments)
    if "<|" in ordinary or "<|" in joined:
        return
    assert parse(spell(segments)) == run(by_ids(), [VOCABULARY.ids(segments)])


@EXAMPLES
@given(SEGMENTS)
def test_only_ordinary_text_comes_out(segments):
    """Ordinary ids are bytes of their own alphabet here: a special id has no text to leak. What
    leaks a spelling would show "<|", which no ordinary text of this test holds."""
    plain = [[kind, text if kind == "s" else text.replace("<", "(")] for kind, text in segments]
    parsed = run(by_ids(), [VOCABULARY.ids(plain)])
    shown = [getattr(event, "text", "") for event in parsed.events]
    shown += [event.name for event in parsed.events if isinstance(event, ToolCallStart)]
    assert not any("<|" in text for text in shown)


SPECIAL_IDS = sorted(VOCABULARY.tokens.markers)
ANY_IDS = st.one_of(st.sampled_from(SPECIAL_IDS), st.integers(1000, 1255))


@EXAMPLES
@given(st.lists(ANY_IDS, max_size=60))
def test_random_ids_never_raise_and_never_depend_on_the_split(ids):
    assert run(by_ids(), [[id_] for id_ in ids]) == run(by_ids(), [ids])


@EXAMPLES
@given(SEGMENTS, EDGES)
def test_strict_raises_its_own_errors_only_and_for_every_split(segments, edges):
    ids = VOCABULARY.ids(segments)

    def outcome(deltas: list[list[int]]) -> Any:
        try:
            return run(by_ids(strict=True), deltas)
        except ParseError as error:
            return type(error), str(error)

    assert outcome([ids[a:b] for a, b in cut(len(ids), edges)]) == outcome([ids])


def refuse(word: str) -> None:
    raise ValueError(word)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@EXAMPLES
@given(SEGMENTS)
def test_valid_means_json_and_what_is_not_has_a_diagnostic(segments):
    parsed = run(by_ids(), [VOCABULARY.ids(segments)])
    named = {Code.ARGUMENTS_INVALID, Code.ARGUMENTS_TRUNCATED, Code.NESTING_TOO_DEEP}
    for index, call in enumerate(parsed.tool_calls):
        if call.valid:
            assert is_json(call.arguments), call
        else:
            codes = {d.code for d in parsed.diagnostics if d.index == index}
            assert codes & named, call


@EXAMPLES
@given(JSON_TEXTS, EDGES)
def test_arguments_are_a_verbatim_slice(arguments, edges):
    if arguments.startswith('"') or arguments == "null":
        return
    text = '<|content_invoke_tool_json|>{"name":"f","args":' + arguments + "}<|end_message|>"
    if "<|" in arguments:
        return
    parsed = run(StreamParser(), [text[a:b] for a, b in cut(len(text), edges)])
    assert [call.arguments for call in parsed.tool_calls] == [arguments]
    assert parsed.tool_calls[0].valid


ANSWER = (
    "<|content_thinking|>plan \U0001f680\n<|end_message|><|message_model|><|content_text|>a < b é"
    "<|end_message|><|message_model|>f<|content_invoke_tool_json|>"
    '{"name":"f","args":{"s":"é\\n&quot;","l":[1,{"k":null}]}}'
    "<|end_message|><|message_user|>hm<|end_message|><|content_model_end_sampling|>"
)


@pytest.mark.parametrize("mode", ["text", "ids"])
def test_truncated_at_every_byte(mode):
    """A prefix of the answer gives a prefix of its value, and no call or word is taken back."""
    if mode == "ids":
        whole = VOCABULARY.ids(segments_of_answer())
        cuts = [whole[:size] for size in range(len(whole) + 1)]
        results = [run(by_ids(), [ids]) for ids in cuts]
    else:
        results = [parse(ANSWER[:size]) for size in range(len(ANSWER) + 1)]
    full = results[-1]
    assert full.termination is Termination.STOP_TOKEN
    for parsed in results:
        assert full.reasoning.startswith(without_cut(parsed.reasoning or ""))
        shown = without_cut(parsed.content or "")
        assert (full.content + "f").startswith(shown), "only a header cut before its kind is added"
        assert len(parsed.tool_calls) <= 1
        for call in parsed.tool_calls:
            assert call.name == "f"
            cut_off = without_cut(call.arguments)
            assert full.tool_calls[0].arguments.startswith(cut_off) or cut_off == "{}"
        if parsed is not full:
            assert parsed.termination is not Termination.STOP_TOKEN


def without_cut(text: str) -> str:
    """Without the half character or half marker that a cut answer ends in."""
    return re.sub(r"(?:\ufffd+|<\|?\w*\|?)\Z", "", text)


def segments_of_answer() -> list[list[str]]:
    return [["t" if marker is None else "s", text] for marker, text in TextLexer().feed(ANSWER)]


def held(thing: Any, seen: set[int] | None = None) -> int:
    """Characters and list entries that hang on an object: the size of its state."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    if isinstance(thing, (str, bytes)):
        return len(thing)
    if isinstance(thing, (list, tuple, set, frozenset)):
        return len(thing) + sum(held(item, seen) for item in thing)
    if isinstance(thing, dict):
        return sum(held(item, seen) for item in thing.values())
    names = [n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ())]
    parts = [getattr(thing, name) for name in names if hasattr(thing, name)]
    return sum(held(part, seen) for part in [*parts, *getattr(thing, "__dict__", {}).values()])


LONG = {
    "thinking": ("<|content_thinking|>", "so it goes & so < on "),
    "arguments": ('<|content_invoke_tool_json|>{"name":"f","args":{"s":"', "text \\n \\u00e9 & "),
    "objects": (
        '<|content_invoke_tool_json|>{"name":"f","args":{"l":[',
        '{"a": [1, 2.5], "b": "x"}, ',
    ),
    "rejected": ("<|content_invoke_tool_json|>{'name", " no json {"),
    "skipped-member": ('<|content_invoke_tool_json|>{"name":"f","note":"', "blah "),
    "broken-arguments": ('<|content_invoke_tool_json|>{"name":"f","args":{"a":NaN,"b":"', "blah "),
    "bare": ("", "no marker at all "),
}


@pytest.mark.parametrize("kind", LONG)
def test_state_is_bounded(kind):
    start, more = LONG[kind]
    parser = StreamParser()
    parser.feed(start)
    largest = 0
    for count in range(1000):
        parser.feed(more)
        if count % 100 == 0:
            largest = max(largest, held(parser))
    assert largest < 8000, f"{1000 * len(more)} characters left a state of {largest}"


def test_state_is_one_character_per_open_bracket():
    parser = StreamParser()
    parser.feed('<|content_invoke_tool_json|>{"name":"f","args":')
    parser.feed('{"a":')
    before = held(parser)
    for _ in range(900):
        parser.feed("[")
    assert held(parser) - before < 3 * 900


@pytest.mark.parametrize("seed", range(6))
def test_fuzz_special_ids_between_bytes(seed):
    source = random.Random(seed)
    payload = VOCABULARY.encode('{"name":"f","args":{"a":[1,"é&quot;"]}}')
    ids: list[int] = []
    for _ in range(400):
        if source.random() < 0.4:
            ids.append(source.choice(SPECIAL_IDS))
        elif source.random() < 0.5:
            start = source.randrange(len(payload))
            ids += payload[start : start + source.randrange(30)]
        else:
            ids += [1000 + source.randrange(256) for _ in range(source.randrange(5))]
    whole = run(by_ids(), [ids])
    assert run(by_ids(), [[id_] for id_ in ids]) == whole
    texts = [event.text for event in whole.events if isinstance(event, DELTAS)]
    assert not any("<|" in text for text in texts)
    # Nothing is made up: beside {} and } for calls, out comes at most what went in.
    made_up = 2 * len(whole.tool_calls)
    assert sum(map(len, texts)) <= sum(id_ >= 1000 for id_ in ids) + made_up
