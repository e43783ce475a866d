"""Reads the payload of one tool block while it streams in.

    {"name": NAME, "args": ARGUMENTS}      members in any order, others skipped

Not a JSON parser (`json_span` finds the values), and what a call looks like to clients is in
`call`. State is O(1) per open bracket, with three exceptions that hold text: what comes before
the name, arguments sent as a string, and a string from an encoded quote on (`doubt`).
"""

from __future__ import annotations

import re
from enum import Enum

from inkling_parsers.call import CallWriter, decode_string
from inkling_parsers.doubt import Doubt
from inkling_parsers.events import Code, Event
from inkling_parsers.json_span import STRING_RUN, JsonSpan

MAX_LEAD = 4096  # characters of text before the payload's first bracket

_BLANK = re.compile("[ \\t\\n\\r\ufeff]*")
_SPACE = re.compile(r"[ \t\n\r]*")
_COMMAS = re.compile(r"[ \t\n\r,]*")
_OPENER = re.compile(r"[{\[]")


class _Stage(Enum):
    LEAD = "before the object"
    MEMBER = "before a member"
    KEY = "in a member's name"
    COLON = "before the colon"
    START = "before a value"
    VALUE = "in a value"
    TRAIL = "behind the object"
    REJECT = "given up"


class _Sink(Enum):
    """Where the value being read goes."""

    KEY = "a member's name"
    NAME = "the tool's name"
    STREAM = "arguments, as they come"
    HOLD = "arguments, when they are whole"
    SKIP = "nowhere"


class PayloadReader:
    """Payload text in, call events out (appended to `out`)."""

    def __init__(self, header: str, index: int, out: list[Event]) -> None:
        self._call = CallWriter(header, index, out)
        self._stage = _Stage.LEAD
        self._array = False
        self._objects = 0
        self._lead = 0
        self._tail = ""  # not read yet: it needs more text
        self._doubt: Doubt | None = None
        self._entities = False
        self._flows = False  # inside a string that is sent on as it comes, with nothing held
        self._begin_object(0)

    @property
    def index(self) -> int:
        """Index of the next call."""
        return self._call.index

    @property
    def malformed(self) -> bool:
        """Whether a diagnostic called the payload malformed."""
        return self._call.malformed

    def _begin_object(self, mark: int) -> None:
        self._raw: list[str] = []  # read, and in no call yet ...
        self._mark = mark  # ... up to here in the text at hand
        self._span = JsonSpan()
        self._sink = _Sink.SKIP
        self._list = False
        self._key = ""
        self._captured: list[str] = []
        self._members = 0
        self._commas = 0
        self._seen: set[str] = set()

    def feed(self, text: str) -> None:
        """Read on."""
        if self.flows(text):
            self._call.send(text)
            return
        doubt = self._doubt
        if doubt is not None:
            verdict = doubt.feed(text)
            if verdict is None:
                return
            text = self._settle(doubt, verdict) + text
        self._run(text, final=False)

    def flows(self, text: str) -> bool:
        """Whether `text` only goes on with a string of arguments that are sent as they come."""
        return self._flows and STRING_RUN.fullmatch(text) is not None

    def close(self, proper: bool) -> None:
        """The block is over; `proper` if a marker of the model's own ended the message."""
        while self._doubt is not None:
            self._run(self._settle(self._doubt, self._doubt.at_end(proper)), final=False)
        self._run("", final=True)
        if self._stage is _Stage.LEAD:
            self._close_empty()
        elif self._stage not in _OVER:
            self._close_object(proper)
        elif self._call.started:
            self._call.end()

    def _settle(self, doubt: Doubt, as_text: bool) -> str:
        self._span.resume(as_text)
        self._doubt = None
        return doubt.text

    def _run(self, text: str, final: bool) -> None:
        text = self._tail + text
        self._mark = 0
        pos = 0
        while pos < len(text):
            stop = _STEPS[self._stage](self, text, pos, final)
            if stop is None:
                break
            pos = stop
        if self._call.started:
            self._raw.clear()
        elif self._stage not in _OVER:
            self._raw.append(text[self._mark : pos])
        self._tail = "" if self._doubt is not None else text[pos:]
        self._flows = (
            self._span.string_is_open
            and self._sink is _Sink.STREAM
            and self._call.started
            and not self._tail
            and self._doubt is None
        )

    # -- one step per stage; answers where it stopped, or None to wait for more text

    def _step_lead(self, text: str, pos: int, final: bool) -> int | None:
        stop = _after(_BLANK, text, pos)
        if stop > pos:
            return stop
        char = text[pos]
        if char == "{":
            self._stage = _Stage.MEMBER
            return pos + 1
        if char == "[" and not self._array:
            self._array = True
            self._call.note(Code.PAYLOAD_ARRAY, "the payload is an array of calls")
            return pos + 1
        if self._array and char == ",":
            return pos + 1
        if self._array and char == "]":
            self._stage = _Stage.TRAIL
            if not self._objects:
                self._reject(text, pos + 1, "the payload is an empty array")
            return pos + 1
        return self._skip_lead(text, pos)

    def _skip_lead(self, text: str, pos: int) -> int:
        if not self._lead:
            self._call.note(Code.LEADING_TEXT, "text before the payload's first bracket")
        match = _OPENER.search(text, pos)
        stop = match.start() if match else len(text)
        self._lead += stop - pos
        if self._lead > MAX_LEAD or self._array:
            return self._give_up(text, pos, "no JSON object in the payload")
        return stop

    def _step_member(self, text: str, pos: int, final: bool) -> int | None:
        stop = _after(_COMMAS, text, pos)
        if stop > pos:
            self._commas += text.count(",", pos, stop)
            return stop
        char = text[pos]
        if char == "}":
            self._check_commas(0)
            self._stage = _Stage.LEAD if self._array else _Stage.TRAIL
            self._end_object(text, pos + 1)
            return pos + 1
        if char not in '"&':
            return self._give_up(text, pos, f"unexpected {char!r} where a member should begin")
        self._check_commas(1 if self._members else 0)
        self._members += 1
        self._stage = _Stage.KEY
        self._begin_value(_Sink.KEY)
        return pos

    def _step_key(self, text: str, pos: int, final: bool) -> int | None:
        stop = self._scan(text, pos, final)
        if stop is None or not self._span.done:
            return stop
        key = decode_string("".join(self._captured))
        if key is None:
            return self._give_up(text, stop, "a member's name is no JSON string")
        self._key = key
        self._stage = _Stage.COLON
        return stop

    def _step_colon(self, text: str, pos: int, final: bool) -> int | None:
        stop = _after(_SPACE, text, pos)
        if stop > pos:
            return stop
        if text[pos] != ":":
            return self._give_up(text, pos, f"unexpected {text[pos]!r} where a colon should be")
        self._stage = _Stage.START
        return pos + 1

    def _step_start(self, text: str, pos: int, final: bool) -> int | None:
        stop = _after(_SPACE, text, pos)
        if stop > pos:
            return stop
        self._begin_value(self._sink_for(text[pos]))
        self._list = text[pos] == "["
        self._stage = _Stage.VALUE
        return pos

    def _step_value(self, text: str, pos: int, final: bool) -> int | None:
        stop = self._scan(text, pos, final)
        if stop is not None and self._span.done:
            self._stage = _Stage.MEMBER
            self._end_value()
        return stop

    def _step_trail(self, text: str, pos: int, final: bool) -> int | None:
        stop = _after(_SPACE, text, pos)
        if stop == pos:
            self._call.trailing()
            self._stage = _Stage.REJECT
        return stop

    def _step_reject(self, text: str, pos: int, final: bool) -> int | None:
        self._call.leftover(text[pos:])
        return len(text)

    # -- values

    def _begin_value(self, sink: _Sink) -> None:
        self._span = JsonSpan(self._entities)
        self._sink = sink
        self._captured = []

    def _sink_for(self, char: str) -> _Sink:
        """Where the value of the member `self._key` goes, by its first character."""
        member = "args" if self._key == "arguments" else self._key
        if member not in ("args", "name"):
            self._call.note(Code.EXTRA_MEMBER, f"skipped the member {self._key!r}")
            return _Sink.SKIP
        if member in self._seen:
            self._call.note(Code.DUPLICATE_MEMBER, f"a second {self._key!r}; the first one counts")
            return _Sink.SKIP
        self._seen.add(member)
        if member == "name":
            return _Sink.NAME
        if self._key != "args":
            self._call.note(Code.ARGUMENTS_ALIAS, f"the arguments came as {self._key!r}")
        return _Sink.STREAM if char in "{[" else _Sink.HOLD

    def _scan(self, text: str, pos: int, final: bool) -> int | None:
        """Read on in the value; None where more text is needed."""
        span, begin = self._span, pos
        stop = span.scan(text, pos, final)
        if span.edits and not self._entities:
            self._entities = True
            repaired = span.edits[0][0]
            if repaired > pos:
                self._absorb(text[pos:repaired])
            self._call.note(Code.REPAIRED_QUOTES, "encoded quotes stood for structural ones")
            pos = repaired
        if stop > pos:
            self._absorb(span.take(text, pos, stop))
        if span.doubt:
            doubt = Doubt(span.key_is_open or self._sink is _Sink.KEY)
            verdict = doubt.feed(text, stop)
            if verdict is not None:
                span.resume(verdict)
                return stop
            self._doubt = doubt
        return None if stop == begin and not span.done else stop

    def _absorb(self, piece: str) -> None:
        if self._sink is _Sink.STREAM:
            self._call.send(piece)
        elif self._sink is not _Sink.SKIP:
            self._captured.append(piece)

    def _end_value(self) -> None:
        fault = self._span.fault
        if self._sink is _Sink.NAME:
            self._call.name(decode_string("".join(self._captured)))
        elif self._sink is _Sink.STREAM:
            self._call.judge(fault, is_object=not self._list)
        elif self._sink is _Sink.HOLD:
            self._call.send_literal("".join(self._captured), fault)
        elif fault is not None:
            self._call.note(Code.PAYLOAD_SYNTAX, f"member {self._key!r}: {fault}")

    # -- the object around them

    def _check_commas(self, wanted: int) -> None:
        if self._commas != wanted:
            self._call.note(Code.PAYLOAD_SYNTAX, f"{self._commas} commas where JSON has {wanted}")
        self._commas = 0

    def _end_object(self, text: str, end: int) -> None:
        """`text[:end]` ends in the closing brace."""
        self._objects += 1
        if self._call.name_by_header():
            self._call.end()
        else:
            self._reject(text, end, "the payload names no tool and there is no header")
        self._begin_object(end)

    def _reject(self, text: str, end: int, reason: str) -> None:
        self._call.reject("".join(self._raw) + text[self._mark : end], reason)

    def _give_up(self, text: str, pos: int, reason: str) -> int:
        """Nothing from `pos` on can be read. A call that has started keeps what it has."""
        self._stage = _Stage.REJECT
        if self._call.started:
            self._call.note(Code.PAYLOAD_SYNTAX, reason)
            return pos
        self._reject(text, len(text), reason)
        return len(text)

    # -- the end of the block

    def _close_empty(self) -> None:
        payload = "".join(self._raw)
        if not self._array or payload.strip():
            self._call.reject(payload, "the payload is empty or no JSON object")

    def _close_object(self, proper: bool) -> None:
        """The object was never closed."""
        mended = self._stage is _Stage.MEMBER
        if self._stage is _Stage.VALUE and self._sink in (_Sink.STREAM, _Sink.HOLD):
            mended = self._close_arguments(proper)
        call = self._call
        if not call.started and not (call.has_arguments and call.name_by_header()):
            self._reject("", 0, "the payload ends before it names a tool")
            return
        if proper and mended:
            call.note(Code.REPAIRED_BRACE, "a closing brace was missing")
        elif proper:
            call.note(Code.PAYLOAD_SYNTAX, "the payload ends in the middle of a member")
        call.end()

    def _close_arguments(self, proper: bool) -> bool:
        """The block ends within the arguments; whether a brace mends them."""
        if proper and self._span.one_brace_short:
            self._call.send("}")
            return True
        literal = "".join(self._captured)
        if literal and not "null".startswith(literal):
            self._call.send(literal)
        code = Code.ARGUMENTS_INVALID if proper else Code.ARGUMENTS_TRUNCATED
        self._call.spoil(code, "the arguments are cut off")
        return False


def _after(pattern: re.Pattern[str], text: str, pos: int) -> int:
    match = pattern.match(text, pos)
    return match.end() if match else pos


_OVER = (_Stage.TRAIL, _Stage.REJECT)
_STEPS = {
    _Stage.LEAD: PayloadReader._step_lead,
    _Stage.MEMBER: PayloadReader._step_member,
    _Stage.KEY: PayloadReader._step_key,
    _Stage.COLON: PayloadReader._step_colon,
    _Stage.START: PayloadReader._step_start,
    _Stage.VALUE: PayloadReader._step_value,
    _Stage.TRAIL: PayloadReader._step_trail,
    _Stage.REJECT: PayloadReader._step_reject,
}
