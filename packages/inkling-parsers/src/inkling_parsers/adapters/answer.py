"""Which field of a chat answer each event goes to: the one rule for every server.

    ReasoningDelta                        -> reasoning
    ContentDelta, tool text, tool error   -> content
    ToolCallStart, ArgumentsDelta         -> calls
    rejected payload                      -> content where calls are shown as text, else nowhere
    everything else                       -> nowhere (diagnostics stay with the parser)

Not here: the dictionaries or objects that a server sends (`openai`, `vllm`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from inkling_parsers.events import (
    ArgumentsDelta,
    Event,
    ReasoningDelta,
    RejectedDelta,
    ToolCallStart,
    visible_text,
)


def new_call_id() -> str:
    """A tool call id that no other call has, in the form that OpenAI clients expect."""
    return f"call_{uuid.uuid4().hex[:24]}"


@dataclass(slots=True)
class CallDelta:
    """News about one call: `id` and `name` only where the call starts."""

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(slots=True)
class AnswerDelta:
    """News about one answer; empty strings and no calls mean no news."""

    reasoning: str = ""
    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)

    def joined(self, later: AnswerDelta) -> AnswerDelta:
        """This and what came after it; a call that goes on stays one entry."""
        calls = list(self.calls)
        for call in later.calls:
            if calls and call.id is None and calls[-1].index == call.index:
                calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + call.arguments)
            else:
                calls.append(call)
        return AnswerDelta(self.reasoning + later.reasoning, self.content + later.content, calls)


def answer_delta(events: Sequence[Event], calls_as_text: bool = False) -> AnswerDelta:
    """Sort events into fields.

    `calls_as_text` shows the payload of refused calls as content: what a server without tool calls
    needs so that nothing is lost.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[CallDelta] = []
    arguments: list[list[str]] = []  # the pieces of each entry of `calls`, joined once
    for event in events:
        if isinstance(event, ReasoningDelta):
            reasoning.append(event.text)
        elif isinstance(event, ToolCallStart):
            calls.append(CallDelta(event.index, new_call_id(), event.name, ""))
            arguments.append([])
        elif isinstance(event, ArgumentsDelta):
            # One entry per call and delta: clients join by index, some expect no repeats.
            if not calls or calls[-1].index != event.index:
                calls.append(CallDelta(event.index, None, None, ""))
                arguments.append([])
            arguments[-1].append(event.text)
        elif isinstance(event, RejectedDelta):
            if calls_as_text:
                content.append(event.text)
        else:
            content.append(visible_text(event))
    for call, pieces in zip(calls, arguments, strict=True):
        call.arguments = "".join(pieces)
    return AnswerDelta("".join(reasoning), "".join(content), calls)
