"""Our strict results in the shape of the model owner's messages, for comparison only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from inkling_parsers.events import BlockEnd, Code, Diagnostic, Termination
from inkling_parsers.result import Block, Parsed, ToolCall

_CONTENT = {"thinking": "Thinking", "text": "Text", "tool_error": "ToolError"}
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def owner_messages(parsed: Parsed) -> list[dict[str, Any]]:
    """Blocks as messages, and a ModelEndSampling where the answer ended."""
    end = {"author": "model", "name": None, "content": "ModelEndSampling"}
    messages: list[dict[str, Any]] = []
    blocks = iter(parsed.blocks)
    ended = False
    for event in parsed.events:
        if isinstance(event, Diagnostic) and event.code is Code.AFTER_STOP and not ended:
            messages.append(end)
            ended = True
        elif isinstance(event, BlockEnd):
            messages += _messages(next(blocks), parsed.tool_calls)
    if parsed.termination is Termination.STOP_TOKEN and not ended:
        messages.append(end)
    return messages


def _messages(block: Block, calls: tuple[ToolCall, ...]) -> Iterator[dict[str, Any]]:
    base = {"author": block.role, "name": block.header or None}
    if block.kind == "invoke_tool_json":
        for index in block.calls:
            yield _call(base, index, calls[index])
    elif block.kind == "invoke_tool_text":
        yield {**base, "content": "InvokeTool", "tool": "", "args": [], "text": block.text}
    else:
        yield {**base, "content": _CONTENT.get(block.kind, block.kind), "text": block.text}


def _call(base: dict[str, Any], index: int, call: ToolCall) -> dict[str, Any]:
    members = _loads(call.arguments)["object"]
    return {
        **base,
        "name": None,
        "content": "InvokeTool",
        "tool": call.name,
        "args": [[name, _spelled(value)] for name, value in members],
        "tool_call_id": f"functions.{call.name}:{index}",
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
