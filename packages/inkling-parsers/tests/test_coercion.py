"""Coercion of an event stream: held back, never rewritten, the same under every split."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from inkling_parsers.coercion import Coercion, coerce_events
from inkling_parsers.events import (
    ArgumentsDelta,
    Code,
    ContentDelta,
    Diagnostic,
    Event,
    ToolCallEnd,
    ToolCallStart,
    coalesce,
)

# A machine that is busy elsewhere is no fault of the code under test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TOOLS = [
    {"type": "function", "function": {"name": "book", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "free", "parameters": {}}},
    {"name": "flat", "parameters": {"properties": {"n": {"type": "integer"}}}},
]  # fmt: skip


def call(name: str, arguments: str, valid: bool = True, index: int = 0) -> list[Event]:
    pieces = [ArgumentsDelta(index, letter) for letter in arguments]
    return [ToolCallStart(index, name), *pieces, ToolCallEnd(index, valid)]


def sent(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, ArgumentsDelta)]


@pytest.mark.parametrize("name", ["book", "flat"])
def test_a_call_is_held_back_and_sent_once_coerced(name: str):
    coercion = Coercion(TOOLS)
    *begin, end = call(name, '{"n":"5"}')
    assert coercion.feed(begin) == begin[:1]
    assert coercion.feed([end]) == [ArgumentsDelta(0, '{"n": 5}'), end]
    assert coercion.finish() == []


@pytest.mark.parametrize("name", ["free", "unknown"])
def test_a_tool_without_a_schema_streams_as_it_comes(name: str):
    events = call(name, '{"n":"5"}')
    coercion = Coercion(TOOLS)
    assert [out for event in events for out in coercion.feed([event])] == events


def test_an_invalid_call_goes_through_unchanged_with_its_diagnostic():
    note = Diagnostic(Code.ARGUMENTS_INVALID, "not JSON", 0)
    start, *rest = call("book", '{"n":"5"', valid=False)
    events = [start, *rest[:-1], note, rest[-1]]
    assert coerce_events(events, TOOLS) == events


def test_a_diagnostic_of_a_coerced_call_is_kept():
    note = Diagnostic(Code.REPAIRED_BRACE, "added one", 0)
    start, *rest = call("book", '{"n":"5"}')
    out = coerce_events([start, note, *rest], TOOLS)
    assert note in out and sent(out) == ['{"n": 5}']


def test_a_stream_that_breaks_off_gives_what_it_holds():
    events = call("book", '{"n":"5')[:-1]
    assert coerce_events(events, TOOLS) == events


def test_a_call_without_arguments_ends():
    events = call("book", "")
    assert coerce_events(events, TOOLS) == events


@UNHURRIED
@given(
    st.lists(st.sampled_from(["book", "flat", "free", "text"]), max_size=4),
    st.lists(st.integers(1, 9), max_size=40),
)
def test_any_split_says_the_same(kinds: list[str], steps: list[int]):
    events: list[Event] = []
    for index, kind in enumerate(kinds):
        is_text = kind == "text"
        events += [ContentDelta("hi")] if is_text else call(kind, '{"n":"5"}', index=index)
    coercion, out, at = Coercion(TOOLS), [], 0
    for step in steps:
        out += coercion.feed(events[at : at + step])
        at += step
    out += coercion.feed(events[at:]) + coercion.finish()
    assert coalesce(out) == coalesce(coerce_events(events, TOOLS))
