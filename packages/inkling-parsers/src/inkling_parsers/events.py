"""What a parser says about a stream: typed events, diagnostics, and how the answer ended.

Not the parser (`parser`) and not the wire format of any server (`adapters`). Text arrives in
deltas: joining the `text` of all deltas of one block gives the block, whatever the split was.
Events are plain classes with slots: one is made per token, and as dataclasses they would be a
third of the time that importing the package takes.

    BlockStart  (deltas)  BlockEnd                         text, thinking, tool text, foreign ...
    BlockStart  ToolCallStart ArgumentsDelta* ToolCallEnd  BlockEnd          a tool call
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Union


class Termination(str, Enum):
    """How the answer ended."""

    STOP_TOKEN = "stop_token"
    LENGTH = "length"
    UNFINISHED_BLOCK = "unfinished_block"
    MALFORMED = "malformed"


class Code(str, Enum):
    """What a diagnostic is about."""

    # about blocks
    BARE_TEXT = "bare_text"
    IMPLICIT_CLOSE = "implicit_close"
    STRAY_MARKER = "stray_marker"
    FOREIGN_ROLE = "foreign_role"
    UNKNOWN_KIND = "unknown_kind"
    AFTER_STOP = "after_stop"
    UNFINISHED_BLOCK = "unfinished_block"
    # about a call: it is still handed on
    NAME_FROM_HEADER = "name_from_header"
    NAME_MISMATCH = "name_mismatch"
    ARGUMENTS_MISSING = "arguments_missing"
    ARGUMENTS_NOT_OBJECT = "arguments_not_object"
    ARGUMENTS_ALIAS = "arguments_alias"
    ARGUMENTS_TRUNCATED = "arguments_truncated"
    ARGUMENTS_INVALID = "arguments_invalid"
    NESTING_TOO_DEEP = "nesting_too_deep"
    DUPLICATE_MEMBER = "duplicate_member"
    EXTRA_MEMBER = "extra_member"
    PAYLOAD_ARRAY = "payload_array"
    PAYLOAD_SYNTAX = "payload_syntax"
    LEADING_TEXT = "leading_text"
    TRAILING_TEXT = "trailing_text"
    # the three repairs
    REPAIRED_STRING = "repaired_string"
    REPAIRED_BRACE = "repaired_brace"
    REPAIRED_QUOTES = "repaired_quotes"
    # a call that is not handed on
    CALL_REJECTED = "call_rejected"
    CALL_REFUSED = "call_refused"


MALFORMED_CODES = frozenset(
    {Code.ARGUMENTS_INVALID, Code.NESTING_TOO_DEEP, Code.PAYLOAD_SYNTAX, Code.CALL_REJECTED}
)


class Record:
    """An event: its fields are the slots, in the order of the constructor."""

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (
            type(other) is type(self) and self._fields() == other._fields()
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._fields()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class BlockStart(Record):
    """A block opens. `role`: model, user, system, tool. `kind`: the content marker's name without
    `content_` (text, thinking, invoke_tool_json, ...); bare text opens as kind text. `header`: the
    text between role and kind marker, as sent."""

    __slots__ = ("header", "kind", "role")

    def __init__(self, role: str, kind: str, header: str) -> None:
        self.role = role
        self.kind = kind
        self.header = header


class BlockEnd(Record):
    """The open block ends; `closed`: by its own end marker, not by another one or the end."""

    __slots__ = ("closed",)

    def __init__(self, closed: bool) -> None:
        self.closed = closed


class ReasoningDelta(Record):
    """Text of a thinking block."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class ContentDelta(Record):
    """Text for the reader: a text block, bare text, or a kind with no meaning of its own."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class ToolTextDelta(Record):
    """Text of a free-form tool invocation (`content_invoke_tool_text`), tool named by `tool`."""

    __slots__ = ("text", "tool")

    def __init__(self, text: str, tool: str) -> None:
        self.text = text
        self.tool = tool


class ToolErrorDelta(Record):
    """Text of a `content_tool_error` block."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class ForeignDelta(Record):
    """Text that the model wrote under another role than its own; not content."""

    __slots__ = ("kind", "role", "text")

    def __init__(self, text: str, role: str, kind: str) -> None:
        self.text = text
        self.role = role
        self.kind = kind


class ToolCallStart(Record):
    """A tool call whose name is final. `index` counts the calls of this answer from 0."""

    __slots__ = ("index", "name")

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name


class ArgumentsDelta(Record):
    """The next piece of a call's arguments, as JSON text."""

    __slots__ = ("index", "text")

    def __init__(self, index: int, text: str) -> None:
        self.index = index
        self.text = text


class ToolCallEnd(Record):
    """A call is over. `valid`: its arguments are JSON text, complete or repaired."""

    __slots__ = ("index", "valid")

    def __init__(self, index: int, valid: bool) -> None:
        self.index = index
        self.valid = valid


class RejectedDelta(Record):
    """Payload text of a tool block that is in no call: a refused call or trailing junk."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Diagnostic(Record):
    """Something a strict reader would refuse. `index`: the call that it is about, if any."""

    __slots__ = ("code", "index", "message")

    def __init__(self, code: Code, message: str, index: int | None = None) -> None:
        self.code = code
        self.message = message
        self.index = index


Event = Union[  # noqa: UP007 - evaluated at import, and Python 3.10 wants Union for this
    BlockStart,
    BlockEnd,
    ReasoningDelta,
    ContentDelta,
    ToolTextDelta,
    ToolErrorDelta,
    ForeignDelta,
    ToolCallStart,
    ArgumentsDelta,
    ToolCallEnd,
    RejectedDelta,
    Diagnostic,
]


def visible_text(event: Event) -> str:
    """What a chat client shows for `event` as message content; "" for everything else."""
    if isinstance(event, (ContentDelta, ToolTextDelta, ToolErrorDelta)):
        return event.text
    return ""


_DELTAS = (
    ReasoningDelta,
    ContentDelta,
    ToolTextDelta,
    ToolErrorDelta,
    ForeignDelta,
    ArgumentsDelta,
    RejectedDelta,
)


def coalesce(events: Iterable[Event]) -> list[Event]:
    """Join neighbouring deltas of one text, so that streams split in different places compare."""
    joined: list[Event] = []
    pieces: list[str] = []
    for event in events:
        if joined and _continues(joined[-1], event):
            pieces.append(getattr(event, "text"))  # noqa: B009 - only deltas get here
            continue
        _join(joined, pieces)
        joined.append(event)
    _join(joined, pieces)
    return joined


def _continues(a: Event, b: Event) -> bool:
    """Whether two deltas are of one text: equal but for it."""
    if type(a) is not type(b) or not isinstance(a, _DELTAS):
        return False
    return all(getattr(a, name) == getattr(b, name) for name in a.__slots__ if name != "text")


def _join(joined: list[Event], pieces: list[str]) -> None:
    """Put the texts that follow the last event's own into a copy of it."""
    if pieces:
        last = joined[-1]
        fields = {name: getattr(last, name) for name in last.__slots__}
        fields["text"] = "".join([fields["text"], *pieces])
        joined[-1] = type(last)(**fields)
        pieces.clear()
