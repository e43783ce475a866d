"""Optional schema coercion of tool-call arguments in an event stream; off unless it is built.

Coercion changes text that a client would otherwise have seen piece by piece, so a call that may be
coerced is held back until it ends and then sent once, coerced. Nothing that was sent changes, and a
stream says the same as a whole answer whatever the split. Calls of unknown tools, of tools whose
schema names no type, and calls that end without valid JSON go through as they come.

    parser:   ToolCallStart  ArgumentsDelta ... ArgumentsDelta  ToolCallEnd
    client:   ToolCallStart  (held back)                        ArgumentsDelta  ToolCallEnd

The rules for values are in `json_coercion`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inkling_parsers.events import (
    ArgumentsDelta,
    Diagnostic,
    Event,
    ToolCallEnd,
    ToolCallStart,
)
from inkling_parsers.json_coercion import coerce_arguments


def coercible_schemas(tools: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Parameter schemas by tool name, from OpenAI tool dictionaries (nested or flat form)."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        name, schema = function.get("name"), function.get("parameters")
        if isinstance(name, str) and isinstance(schema, Mapping) and _says_something(schema):
            schemas[name] = schema
    return schemas


def _says_something(schema: Mapping[str, Any]) -> bool:
    return any(schema.get(key) for key in ("properties", "additionalProperties", "$ref", "anyOf"))


class Coercion:
    """Coerces the arguments in one answer's events to the tools' schemas.

    `feed` takes what a parser returned and gives what may be sent now; `finish` gives what a
    stream that broke off inside a call still holds, unchanged.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]]) -> None:
        self._schemas = coercible_schemas(tools)
        self._schema: Mapping[str, Any] | None = None
        self._held: list[Event] = []

    def feed(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, ToolCallStart):
                out.extend(self.finish())
                self._schema = self._schemas.get(event.name)
                out.append(event)
            elif self._schema is None:
                out.append(event)
            else:
                self._held.append(event)
                if isinstance(event, ToolCallEnd):
                    out.extend(self._coerced(event))
        return out

    def finish(self) -> list[Event]:
        held, self._held, self._schema = self._held, [], None
        return held

    def _coerced(self, end: ToolCallEnd) -> list[Event]:
        schema = self._schema
        held = self.finish()
        pieces = [event.text for event in held if isinstance(event, ArgumentsDelta)]
        if not end.valid or schema is None or not pieces:
            return held
        arguments = ArgumentsDelta(end.index, coerce_arguments("".join(pieces), schema))
        notes: list[Event] = [event for event in held if isinstance(event, Diagnostic)]
        return [*notes, arguments, end]


def coerce_events(events: Iterable[Event], tools: Iterable[Mapping[str, Any]]) -> list[Event]:
    """A whole answer's events with coerced arguments: one feed, so a stream cannot differ."""
    coercion = Coercion(tools)
    return [*coercion.feed(events), *coercion.finish()]
