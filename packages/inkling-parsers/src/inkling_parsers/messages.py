"""Chat messages and tools in OpenAI's form, read once and checked whole.

Not here: markers, order and spelling of the prompt (``render``). Everything below turns what a
client sent into plain frozen records, or raises RenderError with the message and the field.
Mappings are accepted, and objects with ``model_dump()``, as web frameworks hand them over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inkling_parsers.canonical_json import read_object
from inkling_parsers.render_errors import Place, shown

Role = Literal["user", "assistant", "system", "developer", "tool"]
PartKind = Literal["text", "image", "audio"]

ROLES: tuple[Role, ...] = ("assistant", "developer", "system", "tool", "user")
_PART_KINDS: Mapping[object, PartKind] = {
    None: "text",
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
}
# Fields that only an assistant turn has; elsewhere they would vanish from the prompt.
_ASSISTANT_ONLY = ("tool_calls", "reasoning", "reasoning_content")


@dataclass(frozen=True)
class Part:
    """One piece of content; `text` is empty unless `kind` is "text"."""

    kind: PartKind
    text: str
    place: Place


@dataclass(frozen=True)
class Call:
    """One tool call of the history, its arguments decoded."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    place: Place


@dataclass(frozen=True)
class Message:
    """One message. Absent strings are empty; `blank`: content was "" or null, not a list."""

    role: Role
    parts: tuple[Part, ...]
    place: Place
    blank: bool = False
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    name: str = ""
    tool_call_id: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()


def read_messages(messages: Iterable[Any], *, unique_keys: bool) -> list[Message]:
    """All messages of a request; `unique_keys` refuses tool arguments that repeat a key."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise Place(None, "messages").error(f"must be a list, got {type(messages).__name__}")
    return [_read_message(value, Place(i), unique_keys) for i, value in enumerate(messages)]


def read_tools(tools: Any, place: Place) -> tuple[Mapping[str, Any], ...]:
    """Tool declarations with exactly the four members that the prompt shows."""
    return tuple(_read_tool(tool, spot) for tool, spot in read_items(tools, place))


def read_tool_strictness(tools: Any, place: Place) -> tuple[bool, ...]:
    """For each tool whether it says `strict: true`; the prompt does not show it, a grammar may."""
    return tuple(
        read_fields(read_fields(tool, spot).get("function"), spot.key("function")).get("strict")
        is True
        for tool, spot in read_items(tools, place)
    )


def _read_message(value: Any, place: Place, unique_keys: bool) -> Message:
    fields = read_fields(value, place)
    role = fields.get("role")
    if role not in ROLES:
        expected = ", ".join(ROLES)
        raise place.key("role").error(f"unknown role {shown(role)}; expected one of {expected}")
    if fields.get("function_call"):
        raise place.key("function_call").error("is not supported; use tool_calls")
    if role != "assistant":
        for field in _ASSISTANT_ONLY:
            if fields.get(field):
                raise place.key(field).error(f"belongs to an assistant message, not to {role}")
    content = fields.get("content")
    return Message(
        role=role,
        parts=_read_parts(content, place.key("content")),
        place=place,
        blank=content is None or content == "",
        reasoning=_read_reasoning(fields, place),
        calls=_read_calls(fields.get("tool_calls"), place.key("tool_calls"), unique_keys),
        name=_optional_text(fields, "name", place),
        tool_call_id=_optional_text(fields, "tool_call_id", place),
        tools=read_tools(fields.get("tools"), place.key("tools")) if role == "developer" else (),
    )


def _read_reasoning(fields: Mapping[str, Any], place: Place) -> str:
    field = "reasoning_content" if fields.get("reasoning") is None else "reasoning"
    return _optional_text(fields, field, place)


def _read_parts(content: Any, place: Place) -> tuple[Part, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Part("text", _text(content, place), place),)
    if isinstance(content, (bytes, bytearray, Mapping)) or not isinstance(content, Iterable):
        raise place.error(f"must be a string or a list of parts, got {type(content).__name__}")
    return tuple(_read_part(part, place.item(i)) for i, part in enumerate(content))


def _read_part(value: Any, place: Place) -> Part:
    if isinstance(value, str):
        return Part("text", _text(value, place), place)
    fields = read_fields(value, place)
    part_type = fields.get("type")
    kind = _PART_KINDS.get(part_type) if part_type is None or isinstance(part_type, str) else None
    if kind is None:
        expected = ", ".join(str(name) for name in _PART_KINDS if name)
        raise place.key("type").error(f"unknown part {shown(part_type)}; expected {expected}")
    text = _text(fields.get("text"), place.key("text")) if kind == "text" else ""
    return Part(kind, text, place)


def _read_calls(value: Any, place: Place, unique_keys: bool) -> tuple[Call, ...]:
    return tuple(_read_call(call, spot, unique_keys) for call, spot in read_items(value, place))


def _read_call(value: Any, place: Place, unique_keys: bool) -> Call:
    fields = read_fields(value, place)
    spot = place.key("function")
    function = read_fields(fields.get("function"), spot)
    arguments = _read_arguments(function.get("arguments"), spot.key("arguments"), unique_keys)
    return Call(
        id=_optional_text(fields, "id", place),
        name=_name(function, spot),
        arguments=arguments,
        place=place,
    )


def _read_arguments(value: Any, place: Place, unique_keys: bool) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        return read_object(value, place, unique_keys=unique_keys) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise place.error(f"must be a JSON object or text of one, got {type(value).__name__}")
    return value


def _read_tool(value: Any, place: Place) -> Mapping[str, Any]:
    fields = read_fields(value, place)
    spot = place.key("function")
    function = read_fields(fields.get("function"), spot)
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        kind = type(parameters).__name__
        raise spot.key("parameters").error(f"must be a JSON schema object, got {kind}")
    return {
        "description": _optional_text(function, "description", spot),
        "name": _name(function, spot),
        "parameters": parameters or {},
        "type": _optional_text(fields, "type", place) or "function",
    }


def _name(function: Mapping[str, Any], place: Place) -> str:
    name = _text(function.get("name"), place.key("name"))
    if not name:
        raise place.key("name").error("must not be empty")
    return name


def read_items(value: Any, place: Place) -> Iterable[tuple[Any, Place]]:
    """The elements of the list that stands at `place`, each with its own place; none for null."""
    if value is None:
        return
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise place.error(f"must be a list, got {type(value).__name__}")
    for index, item in enumerate(value):
        yield item, place.item(index)


def read_fields(value: Any, place: Place) -> Mapping[str, Any]:
    """The members of the object that stands at `place`; `model_dump()` is asked if there."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    if isinstance(dumped, Mapping):
        return dumped
    raise place.error(f"must be an object, got {type(value).__name__}")


def _optional_text(fields: Mapping[str, Any], key: str, place: Place) -> str:
    value = fields.get(key)
    return "" if value is None else _text(value, place.key(key))


def _text(value: Any, place: Place) -> str:
    if not isinstance(value, str):
        raise place.error(f"must be a string, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise place.error(f"holds a lone surrogate at character {error.start}") from None
    return value
