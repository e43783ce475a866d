"""What the model owner's parser refuses, as the same kinds of error. Used by `strict=True` only.

Not a second parser: `machine` finds blocks and calls as ever, with the strict table. Here a
complete payload is held to the strict rules, which need it whole, and the errors have their names.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, NoReturn

MAX_DEPTH = 127

_BAD_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]|\\?\Z|\\u[^\0]{0,3}\Z)"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
# An open string counts to the end, so that no quote in it is tried again.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\(?:.|\Z))*(?:"|\Z)|[{}\[\]]', re.DOTALL)
_HEX = re.compile("[0-9a-fA-F]{4}")
_CUT_NUMBER = re.compile(
    r"(?<![\w.+-])-?(?:0|[1-9][0-9]*)(?:(?=\.\Z)|(?:\.[0-9]+)?(?=[eE][+-]?\Z))"
)
_CUT_WORDS = frozenset(
    word[:size] for word in ("-1", "true", "false", "null") for size in range(1, len(word))
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF8 = codecs.getincrementaldecoder("utf-8")
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


class Utf8ContentError(ParseError):
    """A header or a block holds bytes that are no UTF-8. Seen where `decode` gives bytes."""


class InternalStateError(ParseError):
    """A block ends in the middle of a character (the owner's name for it)."""


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


def is_cut(text: str) -> bool:
    """Whether the `text` of a block ends in the middle of a character.

    Bytes that are no UTF-8 come as lone surrogates (`detokenize`). Raises Utf8ContentError for
    those that no further byte can complete.
    """
    broken = _LONE_SURROGATE.search(text)
    if broken is None:
        return False
    rest = text[broken.start() :]
    try:
        _UTF8().decode(rest.encode("utf-8", "surrogateescape"))
    except UnicodeError:
        raise Utf8ContentError(f"no UTF-8 from {rest[:4]!r} on") from None
    return True


def check_header(header: str) -> None:
    """Raises Utf8ContentError for a header that is no UTF-8."""
    if _LONE_SURROGATE.search(header):
        raise Utf8ContentError(f"the header {header!r} is no UTF-8")


def _refuse_constant(word: str) -> NoReturn:
    raise JsonSyntaxError(f"{word} is no JSON value")


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, duplicates kept."""


def _load(payload: str) -> Any:
    depth = _nesting(payload)
    if depth > MAX_DEPTH:
        raise JsonSyntaxError(f"nested {depth} deep, the limit is {MAX_DEPTH}")
    if _BAD_SURROGATE.search(_ESCAPED_BACKSLASH.sub("  ", payload)):
        raise JsonSyntaxError("half of a surrogate pair")
    try:
        # Only types are looked at, and Python refuses to convert integers of over 4,300 digits.
        return json.loads(
            payload,
            object_pairs_hook=_Pairs,
            parse_constant=_refuse_constant,
            parse_int=lambda digits: 0,
        )
    except json.JSONDecodeError as error:
        kind = JsonIncompleteError if _is_beginning(payload, error) else JsonSyntaxError
        raise kind(f"{error.msg} at character {error.pos}") from None


def _is_beginning(payload: str, error: json.JSONDecodeError) -> bool:
    """Whether `payload` would be JSON if it went on: Python calls half a word or number an error,
    at the place where it begins or where the number could have ended."""
    if error.msg.startswith("Unterminated"):
        return True
    if error.msg.startswith("Invalid \\u"):
        digits = payload[payload.rindex("\\u", 0, error.pos + 2) + 2 :]
        return len(digits.encode("utf-8", "replace")) < 4 or _HEX.fullmatch(digits) is not None
    if error.msg.startswith("Invalid"):
        return False
    if error.pos >= len(payload.rstrip(" \t\n\r")):
        return True
    if error.msg == "Expecting value":
        return payload[error.pos :] in _CUT_WORDS
    cut = _CUT_NUMBER.search(payload)
    return cut is not None and cut.end() == error.pos


def _nesting(payload: str) -> int:
    depth = deepest = 0
    for bracket in _STRING_OR_BRACKET.findall(payload):
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
