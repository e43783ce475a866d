"""Events compare by type and fields, and deltas of one text join."""

from __future__ import annotations

from inkling_parsers.events import (
    ArgumentsDelta,
    Code,
    ContentDelta,
    Diagnostic,
    ReasoningDelta,
    ToolErrorDelta,
    ToolTextDelta,
    coalesce,
    visible_text,
)


def test_equality_and_hash():
    assert ContentDelta("a") == ContentDelta("a") != ReasoningDelta("a")
    assert len({ContentDelta("a"), ContentDelta("a"), ReasoningDelta("a")}) == 2
    assert ContentDelta("a") != "a"
    assert repr(ArgumentsDelta(1, "x")) == "ArgumentsDelta(index=1, text='x')"


def test_coalesce_joins_only_what_belongs_together():
    note = Diagnostic(Code.BARE_TEXT, "m")
    events = [
        ContentDelta("a"),
        ContentDelta("b"),
        ReasoningDelta("c"),
        ArgumentsDelta(0, "d"),
        ArgumentsDelta(1, "e"),
        ArgumentsDelta(1, "f"),
        note,
        note,
    ]
    joined = coalesce(events)
    assert joined == [
        ContentDelta("ab"),
        ReasoningDelta("c"),
        ArgumentsDelta(0, "d"),
        ArgumentsDelta(1, "ef"),
        note,
        note,
    ]
    assert events[0] == ContentDelta("a"), "the events that came in are not changed"


def test_visible_text():
    shown = [ContentDelta("a"), ToolTextDelta("b", "sh"), ToolErrorDelta("c"), ReasoningDelta("d")]
    assert [visible_text(event) for event in shown] == ["a", "b", "c", ""]
