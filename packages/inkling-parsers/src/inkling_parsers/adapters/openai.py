"""OpenAI chat dictionaries from parser events, for any server; no package is needed.

    stream:  deltas = ChatDeltas();  deltas.feed(parser.feed(...))  -> choices[0].delta or None
             deltas.finish_reason(parser.termination)               -> choices[0].finish_reason
    whole:   chat_message(events)                                   -> choices[0].message
    frames:  ChunkFrame(id, model, created).chunk(delta)            -> chat.completion.chunk

Joining the deltas of a stream gives the whole message: both come from the same events. Not here:
HTTP, usage counts, and what the events mean (`inkling_parsers.events`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inkling_parsers.adapters.answer import AnswerDelta, CallDelta, answer_delta
from inkling_parsers.coercion import Coercion
from inkling_parsers.events import Event, Termination

DEFAULT_REASONING_FIELD = "reasoning_content"


class ChatDeltas:
    """One choice of a stream: feed it the parser's events, send the delta dictionaries.

    `reasoning_field` is where thoughts go: "reasoning_content" (the widespread name), "reasoning",
    or None to leave them out. `coerce_to` is the request's tools where arguments shall be coerced
    to their schemas (`inkling_parsers.coercion`), which delays a call's arguments to its end.
    """

    def __init__(
        self,
        reasoning_field: str | None = DEFAULT_REASONING_FIELD,
        coerce_to: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        self._reasoning_field = reasoning_field
        self._coercion = None if coerce_to is None else Coercion(coerce_to)
        self._said_role = False
        self._calls = 0

    def feed(self, events: Iterable[Event]) -> dict[str, Any] | None:
        """The delta for these events; None where there is nothing to send."""
        if self._coercion is not None:
            events = self._coercion.feed(events)
        return self._delta(answer_delta(list(events)))

    def finish(self, events: Iterable[Event]) -> dict[str, Any] | None:
        """The last delta, from the events of the parser's `finish`."""
        if self._coercion is not None:
            events = [*self._coercion.feed(events), *self._coercion.finish()]
        return self._delta(answer_delta(list(events)))

    def finish_reason(self, termination: Termination | None) -> str:
        """OpenAI's word for how the answer ended, once all its events were fed."""
        return finish_reason(termination, has_calls=self._calls > 0)

    def _delta(self, news: AnswerDelta) -> dict[str, Any] | None:
        delta: dict[str, Any] = {}
        if news.reasoning and self._reasoning_field is not None:
            delta[self._reasoning_field] = news.reasoning
        if news.content:
            delta["content"] = news.content
        if news.calls:
            delta["tool_calls"] = [_call_delta(call) for call in news.calls]
            self._calls += sum(call.id is not None for call in news.calls)
        if not delta:
            return None
        if not self._said_role:
            self._said_role = True
            delta = {"role": "assistant", **delta}
        return delta


def _call_delta(call: CallDelta) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": call.arguments}
    if call.id is None:
        return {"index": call.index, "function": function}
    function = {"name": call.name, **function}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


def chat_message(
    events: Iterable[Event],
    reasoning_field: str | None = DEFAULT_REASONING_FIELD,
    coerce_to: Iterable[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The assistant message of a whole answer, from all its events. `content` is None without
    text, `tool_calls` is left out without calls."""
    deltas = ChatDeltas(reasoning_field, coerce_to)
    whole = deltas.finish(events) or {}
    message: dict[str, Any] = {"role": "assistant", "content": whole.get("content")}
    if reasoning_field is not None and reasoning_field in whole:
        message[reasoning_field] = whole[reasoning_field]
    calls: dict[int, dict[str, Any]] = {}
    for entry in whole.get("tool_calls", ()):
        index = entry["index"]
        if index in calls:
            calls[index]["function"]["arguments"] += entry["function"]["arguments"]
        else:
            calls[index] = {key: value for key, value in entry.items() if key != "index"}
    if calls:
        message["tool_calls"] = list(calls.values())
    return message


def finish_reason(termination: Termination | None, has_calls: bool) -> str:
    """ "length" for an answer that was cut, else "tool_calls" or "stop"."""
    if termination in (Termination.LENGTH, Termination.UNFINISHED_BLOCK):
        return "length"
    return "tool_calls" if has_calls else "stop"


@dataclass(frozen=True)
class ChunkFrame:
    """What all chunks of one stream share. `created` is in seconds since the epoch."""

    id: str
    model: str
    created: int

    def chunk(
        self, delta: Mapping[str, Any] | None, finish_reason: str | None = None, index: int = 0
    ) -> dict[str, Any]:
        """One chat.completion.chunk. The last one of a choice has a finish reason."""
        choice = {"index": index, "delta": dict(delta or {}), "finish_reason": finish_reason}
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        }
