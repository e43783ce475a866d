"""Our strict results in the shape of the model owner's messages, for comparison only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from inkling_parsers.events import BlockEnd, BlockStart, Code, Diagnostic, Termination
from inkling_parsers.result import Block, Parsed, ToolCall

_CONTENT = {"thinking": "Thinking", "text": "Text", "tool_error": "ToolError"}
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def owner_messages(parsed: Parsed) -> list[dict[str, Any]]:
    """Blocks as messages, and a ModelEndSampling for each stop token."""
    end = {"author": "model", "name": None, "content": "ModelEndSampling"}
    messages: list[dict[str, Any]] = []
    blocks = iter(parsed.blocks)
    ended = False
    for event, following in zip_longest(parsed.events, parsed.events[1:]):
        if isinstance(event, Diagnostic) and event.code is Code.AFTER_STOP:
            messages += [] if ended else [end]
            messages += [] if isinstance(following, BlockStart) else [end]
            ended = True
        elif isinstance(event, BlockEnd):
            block = next(blocks)
            calls = sum(message["content"] == "InvokeTool" for message in messages)
            messages.append(_message(block, parsed.tool_calls, calls))
    if parsed.termination is Termination.STOP_TOKEN and not ended:
        messages.append(end)
    return messages


def _message(block: Block, calls: tuple[ToolCall, ...], index: int) -> dict[str, Any]:
    """A block as a message; `index` counts the invocations before it."""
    base = {"author": block.role, "name": block.header or None}
    if block.kind == "invoke_tool_json":
        if block.calls:
            call = calls[block.calls[0]]
            return _call(base, index, call.name, _loads(call.arguments))
        # Another role's call is no call of ours, only text; to the owner it is one.
        members = dict(_loads(block.text)["object"])
        return _call(base, index, members["name"], members["args"])
    if block.kind == "invoke_tool_text":
        call_id = f"functions.unknown:{index}"
        tool = {"content": "InvokeTool", "tool": "", "args": [], "tool_call_id": call_id}
        return {**base, **tool, "text": block.text}
    return {**base, "content": _CONTENT.get(block.kind, block.kind), "text": block.text}


def _call(base: dict[str, Any], index: int, name: str, arguments: Any) -> dict[str, Any]:
    return {
        **base,
        "name": None,
        "content": "InvokeTool",
        "tool": name,
        "args": [[key, _spelled(value)] for key, value in arguments["object"]],
        "tool_call_id": f"functions.{name}:{index}",
    }


def _loads(text: str) -> Any:
    """JSON with nothing lost: members in order, numbers as they are spelled."""
    return json.loads(text, object_pairs_hook=_object, parse_int=_number, parse_float=_number)


def _number(spelling: str) -> dict[str, str]:
    return {"number": spelling}


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with its members in order, duplicates kept."""
    return {"object": [list(member) for member in members]}


def comparable(messages: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` with the members that those of `like` have."""
    shown = [
        {name: message.get(name) for name in _members(wanted)}
        for message, wanted in zip(messages, like, strict=False)
    ]
    return [*shown, *messages[len(like) :]]


def respelled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row's messages with argument values spelled as `owner_messages` spells them."""
    return [
        {**message, "args": [[name, _spelled(_loads(part))] for name, part in message["args"]]}
        if message.get("args")
        else message
        for message in messages
    ]


def _members(message: Mapping[str, Any]) -> list[str]:
    return [name for name, value in message.items() if name != "metadata" and value is not None]


def _spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def by_value(text: str) -> str:
    """`text` with every number replaced by the float that it stands for."""
    return _NUMBER.sub(lambda match: repr(float(match.group())), text)
