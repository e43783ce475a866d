"""The conditions of rows of kind `stream`, which are written in prose.

Read are: `no_marker_in_any_delta`, `concat==whole`, `finish_on_empty_delta`, conditions on what
has arrived after a chunk (`content_after_chunk:2 startswith 'a '`, chunks counted from 1), and
sentences about the order of name and arguments. Other prose is for people; `concat==whole` holds
for every row, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from inkling_parsers.events import (
    ArgumentsDelta,
    Event,
    ReasoningDelta,
    ToolCallStart,
    visible_text,
)
from inkling_parsers.markers import SPELLINGS
from inkling_parsers.parser import StreamParser
from inkling_parsers.result import Parsed

_AFTER = re.compile(
    r"(content|reasoning|name|arguments)_after_chunk:(\d+)\s+"
    r"(startswith|endswith|contains|==|equals|is)\s+'(.*)'"
)
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "==": lambda text, other: text == other,
    "equals": lambda text, other: text == other,
    "is": lambda text, other: text == other,
}


def broken_conditions(row: Mapping[str, Any], parser: Callable[[], StreamParser]) -> list[str]:
    """What the row demands of its own chunks and does not get."""
    stream = parser()
    chunks = [stream.feed(chunk) for chunk in row["chunks"]]
    chunks.append(stream.finish())
    whole = parser()
    events = whole.feed("".join(row["chunks"])) + whole.finish()
    assert stream.termination is not None and whole.termination is not None
    problems: list[str] = []
    streamed = Parsed.collect([e for chunk in chunks for e in chunk], stream.termination)
    if streamed.events != Parsed.collect(events, whole.termination).events:
        problems.append("concat==whole: the chunks give other events than the whole")
    for condition in row.get("checks", ()):
        if not _holds(condition, chunks):
            problems.append(f"condition not met: {condition}")
    return problems


def _holds(condition: str, chunks: list[list[Event]]) -> bool:
    after = _AFTER.match(condition)
    if after:
        field, number, test, wanted = after.groups()
        seen = [event for chunk in chunks[: int(number)] for event in chunk]
        return _TESTS[test](_so_far(field, seen), wanted)
    if condition == "no_marker_in_any_delta":
        texts = [getattr(event, "text", "") for chunk in chunks for event in chunk]
        return not any(name in text for text in texts for name in SPELLINGS)
    if "name" in condition and "argument" in condition:
        return _names_first([event for chunk in chunks for event in chunk])
    return True


def _so_far(field: str, events: list[Event]) -> str:
    if field == "name":
        names = [event.name for event in events if isinstance(event, ToolCallStart)]
        return names[-1] if names else ""
    if field == "arguments":
        return "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
    if field == "reasoning":
        return "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return "".join(visible_text(event) for event in events)


def _names_first(events: list[Event]) -> bool:
    """Whether each call has its name before any of its arguments."""
    named: set[int] = set()
    for event in events:
        if isinstance(event, ToolCallStart):
            named.add(event.index)
        elif isinstance(event, ArgumentsDelta) and event.index not in named:
            return False
    return True
