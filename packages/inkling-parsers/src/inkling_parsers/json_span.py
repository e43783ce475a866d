"""One JSON value, found and checked while it streams in. Not a parser: no objects are built.

`JsonSpan.scan(text, pos)` reads on from `pos` and says where it stopped: behind the value, at the
end of `text`, or before a piece that the next text must complete (an escape, a number, an
encoded quote; the caller puts it in front of that text). Regular expressions jump over what is
plain, the state is one character per open bracket.

Text that is not JSON is no reason to stop: the first fault is kept in `fault`, and from there on
only strings and brackets count, so that the end of the value can still be found.

    expect        what may come next
    VALUE         a value                     FIRST_ITEM   a value or ]
    KEY_NEXT      a string                    FIRST_KEY    a string or }
    COLON         :                           NEXT         , or the closing bracket

`&quot;` for a structural quote is read as the quote (`entities`). Inside a string it may as well
be text; there the span stops with `doubt` set, and `resume` says which it is.
"""

from __future__ import annotations

import re
from functools import cache

MAX_DEPTH = 1000
MAX_SCALAR = 512

NESTING = "nested deeper than the limit"


# What may come next. Plain integers: members of an enumeration compare three times as slowly.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY_NEXT, _COLON, _NEXT = range(6)
_BEFORE_KEY = (_KEY_NEXT, _FIRST_KEY)

_WS = r"[ \t\n\r]*"
_ENTITY_NAME = r"&(?:quot|#34|#x22);"
_ESCAPED = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_PLAIN = r'[^"\\&\x00-\x1f]*'
_STRING = rf'"{_PLAIN}(?:(?:{_ESCAPED}|(?!{_ENTITY_NAME})&){_PLAIN}){{0,256}}"'
_NUMBER = r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,99})?(?:[eE][+-]?[0-9]{1,9})?"
_SCALAR_WORD = rf"(?:{_STRING}|{_NUMBER}|true|false|null)"


def _flat(value: str) -> str:
    """A value, a small array of values or object of values: one level more than `value`."""
    item, member = rf"{_WS}{value}{_WS}", rf"{_WS}{_STRING}{_WS}:{_WS}{value}{_WS}"
    items, members = (rf"{part}(?:,{part}){{0,63}}" for part in (item, member))
    return rf"(?:{value}|\[(?:{items}|{_WS})\]|\{{(?:{members}|{_WS})\}})"


@cache
def _jumps() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for whole members and whole items, flat containers included.

    Each item has its comma, so none of them is cut. The counts bound what a failing match goes
    back over, and the memory for it. Compiled for the first tool call: they would be a third of
    the package's import.
    """
    value = _flat(_SCALAR_WORD)
    members = re.compile(rf"(?:{_WS}{_STRING}{_WS}:{_WS}{value}{_WS},){{1,64}}")
    return members, re.compile(rf"(?:{_WS}{value}{_WS},){{1,64}}")


_KEY = re.compile(rf"{_WS}{_STRING}{_WS}:")
_SPACE = re.compile(_WS)
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_SCALAR_RUN = re.compile(r"[-+.0-9A-Za-z]*")
# Inside a string: what neither ends it nor leaves a question open.
STRING_RUN = re.compile(rf"{_PLAIN}(?:(?:{_ESCAPED}|&(?=[^q#])){_PLAIN}){{0,256}}")
_ESCAPE = re.compile(_ESCAPED)
_ESCAPE_START = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_LENIENT_RUN = re.compile(r'[^"{}\[\]]*')
_LENIENT_TOP = re.compile(r'[^"{}\[\],]*')
_ENTITY = re.compile(_ENTITY_NAME)
_ENTITY_START = re.compile(r"&(?:q(?:u(?:ot?)?)?|#(?:34?|x(?:22?)?)?)?\Z")
_ENTITY_CLOSES = re.compile(r"[ \t\n\r]{0,64}(?:[,:}\]]|(\Z))")


class JsonSpan:
    """Reads one JSON value. `done`: the value is over; `fault`: why it is not JSON, or None."""

    __slots__ = (
        "_by_text",
        "_depth",
        "_expect",
        "_in_string",
        "_is_key",
        "_stack",
        "done",
        "doubt",
        "edits",
        "entities",
        "fault",
    )

    def __init__(self, entities: bool = False) -> None:
        self.done = False
        self.fault: str | None = None
        self.entities = entities
        self.doubt = False
        self.edits: list[tuple[int, int]] = []
        self._stack: list[str] = []
        self._depth = 0  # counts brackets after a fault, when the stack is given up
        self._expect = _VALUE
        self._in_string = False
        self._is_key = False
        self._by_text = False  # encoded quotes in this string are text

    @property
    def one_brace_short(self) -> bool:
        """Whether a single `}` would complete the value."""
        return (
            self.fault is None
            and not self._in_string
            and self._stack == ["{"]
            and self._expect in (_NEXT, _FIRST_KEY)
        )

    @property
    def string_is_open(self) -> bool:
        """Whether the value goes on inside a string."""
        return self._in_string

    @property
    def key_is_open(self) -> bool:
        """Whether the open string is a member's name."""
        return self._is_key

    def take(self, text: str, start: int, end: int) -> str:
        """What was read between `start` and `end`, encoded structural quotes decoded."""
        if not self.edits:
            return text[start:end]
        pieces: list[str] = []
        for begin, stop in self.edits:
            pieces += (text[start:begin], '"')
            start = stop
        self.edits.clear()
        return "".join([*pieces, text[start:end]])

    def resume(self, as_text: bool) -> None:
        """Settle a doubt: encoded quotes in this string are text, or they are quotes."""
        self.doubt = False
        self._by_text = as_text
        self.entities = self.entities or not as_text

    def scan(self, text: str, pos: int, final: bool = False) -> int:
        """Read on from `pos`; returns where it stopped. `final`: nothing follows `text`."""
        end = len(text)
        while pos < end and not self.done:
            if self._in_string:
                stop = self._scan_string(text, pos, final)
            elif self.fault is None:
                stop = self._jump(text, pos)
                if stop == pos:
                    stop = self._scan_token(text, pos, final)
            else:
                stop = self._scan_lenient(text, pos, final)
            if stop == pos:
                break
            pos = stop
        return pos

    def _fail(self, reason: str) -> None:
        if self.fault is None:
            self.fault = reason
            self._depth = len(self._stack)
            self._stack.clear()

    def _after_value(self) -> None:
        if self._stack:
            self._expect = _NEXT
        else:
            self.done = True

    def _jump(self, text: str, pos: int) -> int:
        """Jump over whole members or items, or one key; `pos` itself if there are none."""
        expect, stack = self._expect, self._stack
        if not stack or len(stack) >= MAX_DEPTH:
            return pos
        members, items = _jumps()
        if stack[-1] == "[":
            match = items.match(text, pos) if expect <= _FIRST_ITEM else None
        elif expect in _BEFORE_KEY:
            match = members.match(text, pos)
            if match:
                self._expect = _KEY_NEXT
                return match.end()
            match = _KEY.match(text, pos)
        else:
            match = None
        if match is None:
            return pos
        self._expect = _VALUE
        return match.end()

    def _scan_token(self, text: str, pos: int, final: bool) -> int:
        """One token of JSON that is valid so far."""
        char = text[pos]
        if char in " \t\n\r":
            space = _SPACE.match(text, pos)
            return space.end() if space else pos + 1
        if char in "{[":
            return self._open(char, pos)
        if char in "}]":
            return self._close(char, pos)
        if char == '"':
            return self._open_string(pos, pos + 1)
        if char == ":" and self._expect == _COLON:
            self._expect = _VALUE
            return pos + 1
        if char == "," and self._expect == _NEXT:
            self._expect = _KEY_NEXT if self._stack[-1] == "{" else _VALUE
            return pos + 1
        if char == "&":
            return self._entity(text, pos, final)
        return self._scalar(text, pos, final)

    def _open(self, char: str, pos: int) -> int:
        if self._expect > _FIRST_ITEM:
            self._fail(f"unexpected {char}")
        elif len(self._stack) >= MAX_DEPTH:
            self._fail(f"{NESTING} of {MAX_DEPTH}")
        else:
            self._stack.append(char)
            self._expect = _FIRST_KEY if char == "{" else _FIRST_ITEM
            return pos + 1
        self._depth += 1
        return pos + 1

    def _close(self, char: str, pos: int) -> int:
        opener, first = ("{", _FIRST_KEY) if char == "}" else ("[", _FIRST_ITEM)
        if self._stack and self._stack[-1] == opener and self._expect in (_NEXT, first):
            self._stack.pop()
            self._after_value()
            return pos + 1
        self._fail(f"unexpected {char}")
        return self._lenient_close(pos)

    def _lenient_close(self, pos: int) -> int:
        """After a fault every closing bracket counts; at depth 0 it belongs to somebody else."""
        if self._depth == 0:
            self.done = True
            return pos
        self._depth -= 1
        self.done = self._depth == 0
        return pos + 1

    def _open_string(self, begin: int, end: int) -> int:
        if self.fault is None:
            self._is_key = self._expect in _BEFORE_KEY
            if self._expect in (_COLON, _NEXT):
                self._fail("unexpected string")
        self._in_string = True
        if end - begin > 1:
            self.edits.append((begin, end))
        return end

    def _close_string(self) -> None:
        self._in_string = False
        self._by_text = False
        if self.fault is not None:
            self.done = self._depth == 0
        elif self._is_key:
            self._expect = _COLON
        else:
            self._after_value()

    def _entity(self, text: str, pos: int, final: bool) -> int:
        """An encoded quote where a token begins."""
        match = _ENTITY.match(text, pos)
        if match:
            self.entities = True
            return self._open_string(pos, match.end())
        if not final and _ENTITY_START.match(text, pos):
            return pos
        self._fail("unexpected &")
        return self._scan_lenient(text, pos, final)

    def _scalar(self, text: str, pos: int, final: bool) -> int:
        match = _SCALAR_RUN.match(text, pos)
        end = match.end() if match else pos
        if end == len(text) and not final and end - pos < MAX_SCALAR:
            return pos
        short = end - pos < MAX_SCALAR
        if short and self._expect <= _FIRST_ITEM and _SCALAR.fullmatch(text, pos, end):
            self._after_value()
            return end
        self._fail(f"unexpected {text[pos : max(end, pos + 1)][:16]}")
        return self._scan_lenient(text, pos, final)

    def _scan_lenient(self, text: str, pos: int, final: bool) -> int:
        """After a fault: brackets and strings only."""
        match = (_LENIENT_RUN if self._depth else _LENIENT_TOP).match(text, pos)
        pos = match.end() if match else pos
        if pos == len(text):
            return pos
        char = text[pos]
        if char == '"':
            return self._open_string(pos, pos + 1)
        if char in "{[":
            self._depth += 1
            return pos + 1
        if char == ",":
            self.done = True
            return pos
        return self._lenient_close(pos)

    def _scan_string(self, text: str, pos: int, final: bool) -> int:
        end = len(text)
        while pos < end:
            match = STRING_RUN.match(text, pos)
            pos = match.end() if match else pos
            if pos == end:
                return pos
            char = text[pos]
            if char == '"':
                self._close_string()
                return pos + 1
            if char == "\\":
                stop = self._escape(text, pos, final)
            elif char == "&":
                stop = self._entity_in_string(text, pos, final)
                if not self._in_string:
                    return stop
            else:
                self._fail(f"control character {ord(char):#04x} in a string")
                stop = pos + 1
            if stop == pos:
                return pos
            pos = stop
        return pos

    def _escape(self, text: str, pos: int, final: bool) -> int:
        match = _ESCAPE.match(text, pos)
        if match:  # a run of characters ends after some escapes
            return match.end()
        if not final and _ESCAPE_START.match(text, pos):
            return pos
        self._fail("unknown escape in a string")
        return min(pos + 2, len(text))

    def _entity_in_string(self, text: str, pos: int, final: bool) -> int:
        match = _ENTITY.match(text, pos)
        if not match:
            return pos if not final and _ENTITY_START.match(text, pos) else pos + 1
        if self._by_text or self.fault is not None:
            return match.end()
        if not self.entities:
            self.doubt = True
            return pos
        closes = _ENTITY_CLOSES.match(text, match.end())
        if closes is None:
            return match.end()
        if closes.group(1) is not None and not final:
            return pos
        self.edits.append((pos, match.end()))
        self._close_string()
        return match.end()
