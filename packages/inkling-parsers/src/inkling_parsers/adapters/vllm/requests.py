"""What the adapters read from a vLLM chat or Responses request, in OpenAI's own form.

Coercion of arguments to tool schemas is off; INKLING_PARSERS_COERCE=on, set for the server, turns
it on for all requests (`inkling_parsers.coercion`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from inkling_parsers.adapters.answer_stream import Calls

COERCION_SWITCH = "INKLING_PARSERS_COERCE"
"""`on`, set for the server, coerces arguments of tool calls to the types of their schemas."""


def openai_tools(tools: Iterable[Any] | None) -> list[dict[str, Any]]:
    """Function tools as chat-completions dictionaries; other kinds have no call format here."""
    found: list[dict[str, Any]] = []
    for tool in tools or ():
        fields = tool if isinstance(tool, Mapping) else tool.model_dump(exclude_none=True)
        if fields.get("type", "function") != "function":
            continue
        function = fields.get("function")
        if function is None:  # the flat form of the Responses API
            function = {key: value for key, value in fields.items() if key != "type"}
        found.append({"type": "function", "function": dict(function)})
    return found


def openai_choice(choice: Any) -> Any:
    """The tool choice as a word or a dictionary."""
    if choice is None or isinstance(choice, (str, Mapping)):
        return choice
    return choice.model_dump(exclude_none=True)


def calls_policy(request: Any, has_tool_parser: bool) -> Calls:
    """What becomes of tool calls in this request's answer."""
    if not has_tool_parser:
        return Calls.SHOWN
    return Calls.DROPPED if getattr(request, "tool_choice", None) == "none" else Calls.SENT


def coercion_tools(request: Any) -> list[dict[str, Any]] | None:
    """The request's tools where the server coerces arguments, else None.

    Raises ValueError for a switch that is neither "on" nor "off".
    """
    value = os.environ.get(COERCION_SWITCH, "off").strip().lower()
    if value not in ("on", "off"):
        raise ValueError(f"{COERCION_SWITCH}={value!r}: the switch is either 'on' or 'off'")
    return openai_tools(getattr(request, "tools", None)) if value == "on" else None


def grammar_covers_reasoning(request: Any, say_so: bool = False) -> bool:
    """Whether vLLM can start a grammar with the first token, reasoning parser or not.

    With `say_so`, tell it to: the request's grammar allows for thinking itself. The flag has two
    names (0.26; 0.30 and later), and requests of the Responses API have it from 0.33 on.
    """
    for name in ("_grammar_from_parser", "_grammar_from_tool_parser"):
        if hasattr(request, name):
            if say_so:
                setattr(request, name, True)
            return True
    return False
