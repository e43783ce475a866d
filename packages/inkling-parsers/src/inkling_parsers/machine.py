"""The one state machine: markers and text in, events out, by the tables of `grammar`.

Not a lexer and not a reader of payloads (`lexer`, `payload`). State is the open block's kind and,
between blocks, text that may be a header (`header`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inkling_parsers.events import (
    BlockEnd,
    BlockStart,
    Code,
    ContentDelta,
    Diagnostic,
    Event,
    ForeignDelta,
    ReasoningDelta,
    RejectedDelta,
    Termination,
    ToolErrorDelta,
    ToolTextDelta,
)
from inkling_parsers.grammar import STRICT_TABLE, TABLE, State, Step
from inkling_parsers.header import HeldText
from inkling_parsers.lexer import Piece
from inkling_parsers.markers import CLASSES, Marker, MarkerClass
from inkling_parsers.payload import PayloadReader
from inkling_parsers.strict import (
    EmptyResponseError,
    InternalStateError,
    UnknownContentTypeError,
    UnterminatedContentError,
    UnterminatedStructureError,
    Utf8ContentError,
    check_header,
    check_payload,
    is_cut,
)

_SPOKEN = {"text": ContentDelta, "thinking": ReasoningDelta, "tool_error": ToolErrorDelta}
_WRITTEN = frozenset({*_SPOKEN, "invoke_tool_text", "invoke_tool_json"})


class BlockMachine:
    """`run` it over what a lexer finds (or call `marker` and `text`), `take` the events, `end`."""

    def __init__(self, strict: bool, allow_calls: bool, header_limit: int) -> None:
        self.out: list[Event] = []
        self.stopped = False
        self._table = STRICT_TABLE if strict else TABLE
        self._strict = strict
        self._allow_calls = allow_calls
        self.text: Callable[[str], None] = self._hold_header  # takes ordinary text
        self._state = State.BETWEEN
        self._role = "model"  # of the open block, or of the next one
        self._last_role = "model"
        self._header = HeldText(header_limit)
        self._is_prompt = False
        self._given = ""  # the part of the header that the prompt holds
        self._write: Callable[[str], Event] = ContentDelta
        self.payload: PayloadReader | None = None  # of the open block
        self._raw: list[str] | None = None  # strict only: the open payload as sent
        self._spelling = ""  # of the marker at hand
        self._is_cut = False  # strict only: the open block ends in half a character so far
        self._fed = False  # whether there was anything at all
        self._name = ""  # the open block's header
        self._kind = ""
        self._blocks = 0
        self._calls = 0
        self._malformed = False
        self._steps = {
            Step.RELEASE: self._release,
            Step.DROP: self._drop,
            Step.ROLE: self._take_role,
            Step.OPEN: self._open,
            Step.CLOSE: self._close,
            Step.CUT: self._cut,
            Step.STOP: self._stop,
            Step.STRAY: self._stray,
        }

    def run(self, pieces: Iterable[Piece]) -> None:
        """What a lexer found, in order."""
        for marker, text in pieces:
            if marker is None:
                self.text(text)
            else:
                self.marker(marker, text)

    def take(self) -> list[Event]:
        """The events so far, once."""
        events = self.out.copy()
        self.out.clear()
        return events

    def marker(self, marker: Marker, spelling: str) -> None:
        """A special token."""
        self._spelling, self._fed = spelling, True
        cell = self._table[self._state, CLASSES[marker]]
        if cell.steps[0] is Step.LITERAL:
            self.text(spelling)
            return
        for step in cell.steps:
            self._steps[step](marker)
        self._enter(cell.state)

    def _enter(self, state: State) -> None:
        """`state` says where ordinary text goes from here on."""
        self._state = state
        if state in (State.BETWEEN, State.HEADER):
            self.text = self._hold_header
        elif self._strict:
            self.text = self._say_strictly
        else:
            self.text = self._say if self.payload is None else self.payload.feed

    def _say(self, text: str) -> None:
        self.out.append(self._write(text))

    def _say_strictly(self, text: str) -> None:
        """Text has to be UTF-8, and a payload is checked as it was sent, once it is whole."""
        if self._is_cut:
            raise Utf8ContentError("a character is cut by what follows it")
        self._is_cut = is_cut(text)
        if self._raw is not None:
            self._raw.append(text)
        (self._say if self.payload is None else self.payload.feed)(text)

    def end(self) -> Termination:
        """Nothing follows."""
        unfinished = self._state in (State.TEXT, State.CALL)
        if self._strict:
            self._check_end(unfinished)
        if unfinished:
            self._note(Code.UNFINISHED_BLOCK, f"the {self._kind} block was not closed")
            self._end_block(closed=False, proper=False)
        elif not self._strict:
            self._release(None)
        self._enter(State.BETWEEN)
        if unfinished:
            return Termination.UNFINISHED_BLOCK
        if self._malformed:
            return Termination.MALFORMED
        return Termination.STOP_TOKEN if self.stopped else Termination.LENGTH

    def begin_prompt(self) -> None:
        """What follows up to `begin_answer` is the prompt."""
        self._is_prompt = True

    def begin_answer(self) -> None:
        """All so far was the prompt: keep where it stands, forget what it said."""
        keep: list[Event] = []
        if self._state in (State.TEXT, State.CALL):
            last = max(i for i, event in enumerate(self.out) if isinstance(event, BlockStart))
            keep = self.out[last:] if self.payload else self.out[last : last + 1]
        self.out[:] = keep
        self._given = self._header.take()
        self._is_prompt = False
        self.stopped = self._malformed = self._fed = False
        self._calls = 0
        self._blocks = len(keep[:1])

    # -- headers

    def _hold_header(self, text: str) -> None:
        self._fed = True
        if self._header.add(text) and not self._strict and not self._is_prompt:
            bare = self._begin_bare()
            self._enter(State.TEXT)
            self.text(bare)

    def _release(self, _marker: Marker | None) -> None:
        """No kind marker followed: the held text is what the model says."""
        if not self._header:
            self._given = ""
            return
        bare = self._begin_bare()
        self.out.append(self._write(bare))
        self._end_block(closed=False, proper=False)

    def _drop(self, _marker: Marker) -> None:
        self._header.take()
        self._given = ""

    def _begin_bare(self) -> str:
        self._note(Code.BARE_TEXT, "text without a kind marker")
        text, self._given = self._header.take(), ""
        self._begin_block("text", "")
        return text

    def _take_role(self, marker: Marker) -> None:
        self._role = marker.role or "model"

    # -- blocks

    def _open(self, marker: Marker) -> None:
        header, self._given = self._given + self._header.take(), ""
        if self._strict:
            check_header(header)
        name = self._spelling if marker is Marker.UNNAMED else marker.value
        self._begin_block(name[2:-2].removeprefix("content_"), header)

    def _begin_block(self, kind: str, header: str) -> None:
        if self.stopped:
            self._note(Code.AFTER_STOP, "a block after the end of the answer")
        self._kind, self._name = kind, header
        self._blocks += 1
        self.out.append(BlockStart(self._role, kind, header))
        self.payload = None
        if self._role != "model":
            role = self._role
            self._note(Code.FOREIGN_ROLE, f"the model wrote a message of role {role}")
            self._write = lambda text: ForeignDelta(text, role, kind)
        elif kind == "invoke_tool_text":
            tool = header.strip()
            self._write = lambda text: ToolTextDelta(text, tool)
        elif kind == "invoke_tool_json":
            self._begin_call(header.strip())
        else:
            self._write = _SPOKEN.get(kind, ContentDelta)
        if kind not in _WRITTEN:
            self._note(Code.UNKNOWN_KIND, f"a model has no business with a {kind} block")
        self._raw = [] if self._strict and kind == "invoke_tool_json" else None

    def _begin_call(self, header: str) -> None:
        self._write = RejectedDelta
        if self._allow_calls:
            self.payload = PayloadReader(header, self._calls, self.out)
        else:
            self._note(Code.CALL_REFUSED, "a tool call, though the request allows none")

    def _close(self, marker: Marker) -> None:
        if self._is_cut:
            raise InternalStateError(f"the {self._kind} block ends in the middle of a character")
        if self._strict and self._kind not in _WRITTEN:
            raise UnknownContentTypeError(self._kind)
        if self._raw is not None:
            check_payload("".join(self._raw), self._name)
        self._end_block(closed=True, proper=True)

    def _cut(self, marker: Marker) -> None:
        self._note(Code.IMPLICIT_CLOSE, f"{marker} ended the open {self._kind} block")
        self._end_block(closed=False, proper=marker is Marker.CONTENT_MODEL_END_SAMPLING)
        if CLASSES[marker] in (MarkerClass.KIND, MarkerClass.CALL):
            self._role = self._last_role

    def _end_block(self, closed: bool, proper: bool) -> None:
        if self.payload is not None:
            self.payload.close(proper)
            self._calls = self.payload.index
            self._malformed = self._malformed or self.payload.malformed
            self.payload = None
        self._raw = None
        self.out.append(BlockEnd(closed))
        self._last_role, self._role = self._role, "model"

    def _stop(self, marker: Marker) -> None:
        if self._strict and marker is Marker.ENDOFTEXT:
            return  # no stop token to the model's owner
        if self._strict and not self._blocks:
            raise EmptyResponseError("the answer ends before its first message")
        if self.stopped:
            self._note(Code.AFTER_STOP, f"{marker} after the end of the answer")
        self.stopped = True

    def _stray(self, marker: Marker) -> None:
        self._note(Code.STRAY_MARKER, f"{marker} has no meaning here")

    def _note(self, code: Code, message: str) -> None:
        self.out.append(Diagnostic(code, message))

    def _check_end(self, unfinished: bool) -> None:
        """The strict rules for the end of an answer."""
        if unfinished:
            raise UnterminatedContentError(f"the answer ends in an open {self._kind} block")
        if self._state is State.HEADER:
            raise UnterminatedStructureError("the answer ends in a header")
        if self._fed and not self._blocks:
            raise EmptyResponseError("the answer holds no message")
