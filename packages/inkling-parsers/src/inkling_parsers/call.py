"""Turns what a payload says into the events of tool calls, in the order that clients need.

Not a reader of JSON: `payload` finds names and arguments and tells them to `CallWriter`. Here is
what becomes of them: which name counts, when a call starts, the repairs, and the diagnostics,
which wait until the call that they are about exists.

    ToolCallStart  Diagnostic*  ArgumentsDelta*  ToolCallEnd
"""

from __future__ import annotations

import json

from inkling_parsers.events import (
    MALFORMED_CODES,
    ArgumentsDelta,
    Code,
    Diagnostic,
    Event,
    RejectedDelta,
    ToolCallEnd,
    ToolCallStart,
)
from inkling_parsers.json_span import NESTING, JsonSpan


def decode_string(literal: str) -> str | None:
    """The string that a JSON string literal stands for; None where it is none."""
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _object_inside(literal: str) -> str | None:
    """The JSON object that a string literal holds, as text, or None."""
    inner = (decode_string(literal) or "").strip(" \t\n\r")
    if not inner.startswith("{"):
        return None
    span = JsonSpan()
    whole = span.scan(inner, 0, final=True) == len(inner) and span.done
    return inner if whole and span.fault is None and not span.entities else None


class CallWriter:
    """The calls of one tool block; events are appended to `out`."""

    def __init__(self, header: str, index: int, out: list[Event]) -> None:
        self.index = index  # of the call being read
        self.header = header
        self.malformed = False  # whether any diagnostic said so
        self._out = out
        self._reset()

    def _reset(self) -> None:
        self.started = False
        self.has_arguments = False
        self._valid = True
        self._notes: list[Diagnostic] = []
        self._held: list[str] = []

    def note(self, code: Code, message: str) -> None:
        """A diagnostic about this call."""
        self.malformed = self.malformed or code in MALFORMED_CODES
        note = Diagnostic(code, message, self.index)
        (self._out if self.started else self._notes).append(note)

    def name(self, name: str | None) -> None:
        """The payload's name; None where it is no string."""
        if not name:
            self.note(Code.PAYLOAD_SYNTAX, "the name is empty or no string")
            return
        if self.header and name != self.header:
            self.note(Code.NAME_MISMATCH, f"header {self.header!r}, payload {name!r}")
        self._start(name)

    def name_by_header(self) -> bool:
        """Call the tool that the header names, if no other name came; whether a call exists."""
        if not self.started and self.header:
            self.note(Code.NAME_FROM_HEADER, f"the name {self.header!r} is only in the header")
            self._start(self.header)
        return self.started

    def _start(self, name: str) -> None:
        self.started = True
        self._out += [ToolCallStart(self.index, name), *self._notes]
        self._notes = []
        if self._held:
            self._out.append(ArgumentsDelta(self.index, "".join(self._held)))
            self._held = []

    def send(self, text: str) -> None:
        """The next piece of the arguments, verbatim."""
        self.has_arguments = True
        if self.started:
            self._out.append(ArgumentsDelta(self.index, text))
        else:
            self._held.append(text)

    def send_literal(self, literal: str, fault: str | None) -> None:
        """Complete arguments that are a string, a number, a word."""
        inner = _object_inside(literal)
        if inner is not None:
            self.note(Code.REPAIRED_STRING, "the arguments came as a string holding an object")
            self.send(inner)
        elif literal != "null":
            self.send(literal)
            self.judge(fault, is_object=False)

    def judge(self, fault: str | None, is_object: bool) -> None:
        """Say what is wrong with complete arguments."""
        if fault is not None:
            deep = fault.startswith(NESTING)
            code = Code.NESTING_TOO_DEEP if deep else Code.ARGUMENTS_INVALID
            self.spoil(code, f"the arguments are no JSON: {fault}")
        elif not is_object:
            self.note(Code.ARGUMENTS_NOT_OBJECT, "the arguments are no object")

    def spoil(self, code: Code, message: str) -> None:
        """What was sent is no JSON, and must be said to be none."""
        self._valid = False
        self.note(code, message)

    def end(self) -> None:
        """The call is over."""
        if not self.has_arguments:
            self.note(Code.ARGUMENTS_MISSING, "no arguments: {} stands for them")
            self.send("{}")
        self._out.append(ToolCallEnd(self.index, self._valid))
        self.index += 1
        self._reset()

    def reject(self, payload: str, reason: str) -> None:
        """No call comes of `payload`; it is handed on as such, never dropped."""
        self.malformed = True
        self._out += [Diagnostic(note.code, note.message) for note in self._notes]
        self._out.append(Diagnostic(Code.CALL_REJECTED, reason))
        self.leftover(payload)
        self._reset()

    def trailing(self) -> None:
        """Text follows that is in no call."""
        self._out.append(Diagnostic(Code.TRAILING_TEXT, "text behind the payload"))

    def leftover(self, text: str) -> None:
        """Payload text that is in no call."""
        if text:
            self._out.append(RejectedDelta(text))
