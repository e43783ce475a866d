"""A whole parsed answer: what the events of a stream add up to.

Not a second way to parse: `Parsed.collect` reads events and nothing else, so it cannot disagree
with a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from inkling_parsers.events import (
    ArgumentsDelta,
    BlockEnd,
    BlockStart,
    Diagnostic,
    Event,
    ForeignDelta,
    ReasoningDelta,
    RejectedDelta,
    Termination,
    ToolCallEnd,
    ToolCallStart,
    coalesce,
    visible_text,
)


class ToolCall(NamedTuple):
    """One call. `arguments` is JSON text as the model wrote it; `valid` says whether it is JSON."""

    name: str
    arguments: str
    valid: bool


class Block(NamedTuple):
    """One message of the answer, as the grammar has it; see `events.BlockStart`.

    `text`: what it says; for a tool block what is in no call. `calls`: indices of its calls.
    """

    role: str
    kind: str
    header: str
    text: str
    calls: tuple[int, ...]
    closed: bool


class Parsed(NamedTuple):
    """A whole answer.

    `reasoning`: all thinking text, `content`: all that a chat client shows, each None when empty.
    `events` are coalesced: equal for every split of the input.
    """

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]
    blocks: tuple[Block, ...]
    events: tuple[Event, ...]
    diagnostics: tuple[Diagnostic, ...]
    termination: Termination

    @classmethod
    def collect(cls, events: Iterable[Event], termination: Termination) -> Parsed:
        """Add up the events of one stream."""
        joined = coalesce(events)
        reasoning = [event.text for event in joined if isinstance(event, ReasoningDelta)]
        content = [visible_text(event) for event in joined]
        return cls(
            reasoning="".join(reasoning) or None,
            content="".join(content) or None,
            tool_calls=tuple(_calls(joined)),
            blocks=tuple(_blocks(joined)),
            events=tuple(joined),
            diagnostics=tuple(event for event in joined if isinstance(event, Diagnostic)),
            termination=termination,
        )


def _calls(events: list[Event]) -> Iterable[ToolCall]:
    name = ""
    arguments: list[str] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            name = event.name
            arguments = []
        elif isinstance(event, ArgumentsDelta):
            arguments.append(event.text)
        elif isinstance(event, ToolCallEnd):
            yield ToolCall(name, "".join(arguments), event.valid)


def _blocks(events: list[Event]) -> Iterable[Block]:
    start = BlockStart("model", "text", "")
    text: list[str] = []
    calls: list[int] = []
    for event in events:
        if isinstance(event, BlockStart):
            start, text, calls = event, [], []
        elif isinstance(event, (ReasoningDelta, ForeignDelta, RejectedDelta)):
            text.append(event.text)
        elif isinstance(event, ToolCallStart):
            calls.append(event.index)
        elif isinstance(event, BlockEnd):
            yield Block(
                start.role, start.kind, start.header, "".join(text), tuple(calls), event.closed
            )
        else:
            text.append(visible_text(event))
