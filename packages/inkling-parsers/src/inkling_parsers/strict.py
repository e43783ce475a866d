"""What the model owner's parser refuses, as the same kinds of error. Used by `strict=True` only.

Not a second parser: `machine` finds blocks and calls as ever, with the strict table. Here a
complete payload is held to the strict rules, which need it whole, and the errors have their names.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MAX_DEPTH = 127

_BAD_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_ESCAPED_BACKSLASH = re.compile(r"\\\\")


class ParseError(ValueError):
    """An answer that the strict rules refuse. `kind` is the name that the owner's parser uses."""

    @property
    def kind(self) -> str:
        return type(self).__name__


class EmptyResponseError(ParseError):
    """No message at all."""


class UnterminatedStructureError(ParseError):
    """The answer ends in a header."""


class UnterminatedContentError(ParseError):
    """The answer ends in an open block."""


class JsonSyntaxError(ParseError):
    """The payload is no JSON."""


class JsonIncompleteError(ParseError):
    """The payload is the beginning of JSON."""


class UnknownContentTypeError(ParseError):
    """A block of a kind that a model does not write; `tag` is its name."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"a block of kind {tag!r}; a model writes text, thinking and tool blocks")
        self.tag = tag


class ToolSchemaError(ParseError):
    """The payload is JSON, but no tool call; `field` says where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class ToolSchemaMissingFieldError(ToolSchemaError):
    """`name` or `args` is missing."""


class ToolSchemaWrongTypeError(ToolSchemaError):
    """A member has the wrong type, or comes twice."""


class ToolSchemaInvalidValueError(ToolSchemaError):
    """A member has an impossible value."""


class OtherParseError(ParseError):
    """Everything else: members that do not belong, a header that contradicts the payload."""


def _refuse_constant(word: str) -> NoReturn:
    raise JsonSyntaxError(f"{word} is no JSON value")


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, duplicates kept."""


def _load(payload: str) -> Any:
    depth = _nesting(payload)
    if depth > MAX_DEPTH:
        raise JsonSyntaxError(f"nested {depth} deep, the limit is {MAX_DEPTH}")
    if _BAD_SURROGATE.search(_ESCAPED_BACKSLASH.sub("", payload)):
        raise JsonSyntaxError("half of a surrogate pair")
    try:
        return json.loads(payload, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(payload.rstrip(" \t\n\r"))
        at_end = at_end and not error.msg.startswith("Invalid control character")
        cut = at_end or error.msg.startswith("Unterminated")
        kind = JsonIncompleteError if cut else JsonSyntaxError
        raise kind(f"{error.msg} at character {error.pos}") from None


def _nesting(payload: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', payload):
        if bracket in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in "}]":
            depth -= 1
    return deepest


def check_payload(payload: str, header: str) -> None:
    """Hold a tool block's payload to the strict rules. Raises the kinds above."""
    value = _load(payload)
    if not isinstance(value, _Pairs):
        raise ToolSchemaWrongTypeError("tool call", "the payload is no object")
    names = [name for name, _ in value]
    for name in names:
        if name not in ("name", "args"):
            raise OtherParseError(f"unsupported tool-call field {name!r}")
        if names.count(name) > 1:
            raise ToolSchemaWrongTypeError(name, "is there twice")
    members = dict(value)
    for name, wanted in (("name", str), ("args", _Pairs)):
        if name not in members or (name == "args" and members[name] is None):
            raise ToolSchemaMissingFieldError(name, "is missing")
        if not isinstance(members[name], wanted):
            raise ToolSchemaWrongTypeError(name, "has the wrong type")
    if not members["name"]:
        raise ToolSchemaInvalidValueError("name", "is empty")
    if header and header != members["name"]:
        raise OtherParseError(f"the header names {header!r}, the payload {members['name']!r}")
