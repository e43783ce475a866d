"""What a parser says about a stream: typed events, diagnostics, and how the answer ended.

Not the parser (`parser`) and not the wire format of any server (`adapters`). Text arrives in
deltas: joining the `text` of all deltas of one block gives the block, whatever the split was.

    BlockStart  (deltas)  BlockEnd                         text, thinking, tool text, foreign ...
    BlockStart  ToolCallStart ArgumentsDelta* ToolCallEnd  BlockEnd          a tool call
"""

from __future__ import annotations

from dataclasses import dataclass
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
    HEADER_TOO_LONG = "header_too_long"
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


@dataclass(frozen=True)
class BlockStart:
    """A block opens. `role`: model, user, system, tool. `kind`: the content marker's name without
    `content_` (text, thinking, invoke_tool_json, ...); bare text opens as kind text. `header`: the
    text between role and kind marker, as sent."""

    role: str
    kind: str
    header: str


@dataclass(frozen=True)
class BlockEnd:
    """The open block ends; `closed`: by its own end marker, not by another one or the end."""

    closed: bool


@dataclass(frozen=True)
class ReasoningDelta:
    """Text of a thinking block."""

    text: str


@dataclass(frozen=True)
class ContentDelta:
    """Text for the reader: a text block, bare text, or a kind with no meaning of its own."""

    text: str


@dataclass(frozen=True)
class ToolTextDelta:
    """Text of a free-form tool invocation (`content_invoke_tool_text`), tool named by `tool`."""

    text: str
    tool: str


@dataclass(frozen=True)
class ToolErrorDelta:
    """Text of a `content_tool_error` block."""

    text: str


@dataclass(frozen=True)
class ForeignDelta:
    """Text that the model wrote under another role than its own; not content."""

    text: str
    role: str
    kind: str


@dataclass(frozen=True)
class ToolCallStart:
    """A tool call whose name is final. `index` counts the calls of this answer from 0."""

    index: int
    name: str


@dataclass(frozen=True)
class ArgumentsDelta:
    """The next piece of a call's arguments, as JSON text."""

    index: int
    text: str


@dataclass(frozen=True)
class ToolCallEnd:
    """A call is over. `valid`: its arguments are JSON text, complete or repaired."""

    index: int
    valid: bool


@dataclass(frozen=True)
class RejectedDelta:
    """Payload text of a tool block that is in no call: a refused call or trailing junk."""

    text: str


@dataclass(frozen=True)
class Diagnostic:
    """Something a strict reader would refuse. `index`: the call that it is about, if any."""

    code: Code
    message: str
    index: int | None = None


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


def _same_stream(a: Event, b: Event) -> bool:
    """Whether two deltas continue one text: equal but for it."""
    if type(a) is not type(b) or not isinstance(a, _DELTAS):
        return False
    fields = (name for name in a.__dataclass_fields__ if name != "text")
    return all(getattr(a, name) == getattr(b, name) for name in fields)


def coalesce(events: list[Event]) -> list[Event]:
    """Join neighbouring deltas of one text, so that streams split in different places compare."""
    joined: list[Event] = []
    pieces: list[str] = []

    def flush() -> None:
        if pieces:
            last = joined.pop()
            assert isinstance(last, _DELTAS)
            extra = {n: getattr(last, n) for n in last.__dataclass_fields__ if n != "text"}
            joined.append(type(last)(text="".join(pieces), **extra))
            pieces.clear()

    for event in events:
        if joined and _same_stream(joined[-1], event):
            assert isinstance(event, _DELTAS)
            pieces.append(event.text)
            continue
        flush()
        joined.append(event)
        if isinstance(event, _DELTAS):
            pieces.append(event.text)
    flush()
    return joined
