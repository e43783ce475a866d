"""The grammar as a table: what each marker does in each state. No code runs here but the lookup.

    state     where the stream is                     text there is
    BETWEEN   no role marker since the last block     a header, or stray words
    HEADER    after a role marker                     a header, or the bare answer
    TEXT      in an open block of text                that block's text
    CALL      in an open tool-call block              payload

A cell holds the steps to take, in order, and the next state. `machine` carries the steps out.
Serving: a special token always means structure, so an opener ends the block that somebody forgot to
close. Strict, as the model owner's parser: inside a block only END has a meaning, every other
special token stands for its own spelling; behind a role marker any of them is the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from inkling_parsers.markers import MarkerClass


class State(str, Enum):
    """Where the stream is, the rows of the tables."""

    BETWEEN = "between"
    HEADER = "header"
    TEXT = "text"
    CALL = "call"


class Step(str, Enum):
    """One thing to do; the meanings are the methods of `machine.BlockMachine`."""

    RELEASE = "release"  # held header text turns out to be the message: hand it on as bare text
    DROP = "drop"  # held text has no place in the format: forget it
    ROLE = "role"  # the marker says who speaks next
    OPEN = "open"  # the marker opens a block; held text is its header
    CLOSE = "close"  # the open block ends as it should
    CUT = "cut"  # the open block ends without its closer
    STOP = "stop"  # the answer is over
    STRAY = "stray"  # a special token without meaning here
    LITERAL = "literal"  # strict only: the token stands for its spelling


class Cell(NamedTuple):
    """Steps to take, and the state after them."""

    steps: tuple[Step, ...]
    state: State


Table = Mapping[tuple[State, MarkerClass], Cell]

_B, _H, _T, _C = State.BETWEEN, State.HEADER, State.TEXT, State.CALL
_M = MarkerClass

TABLE: Table = {
    (_B, _M.ROLE): Cell((Step.RELEASE, Step.ROLE), _H),
    (_B, _M.KIND): Cell((Step.OPEN,), _T),
    (_B, _M.CALL): Cell((Step.OPEN,), _C),
    (_B, _M.END): Cell((Step.RELEASE,), _B),
    (_B, _M.STOP): Cell((Step.RELEASE, Step.STOP), _B),
    (_B, _M.OTHER): Cell((Step.STRAY,), _B),
    (_H, _M.ROLE): Cell((Step.RELEASE, Step.ROLE), _H),
    (_H, _M.KIND): Cell((Step.OPEN,), _T),
    (_H, _M.CALL): Cell((Step.OPEN,), _C),
    (_H, _M.END): Cell((Step.RELEASE,), _B),
    (_H, _M.STOP): Cell((Step.RELEASE, Step.STOP), _B),
    (_H, _M.OTHER): Cell((Step.STRAY,), _H),
    (_T, _M.ROLE): Cell((Step.CUT, Step.ROLE), _H),
    (_T, _M.KIND): Cell((Step.CUT, Step.OPEN), _T),
    (_T, _M.CALL): Cell((Step.CUT, Step.OPEN), _C),
    (_T, _M.END): Cell((Step.CLOSE,), _B),
    (_T, _M.STOP): Cell((Step.CUT, Step.STOP), _B),
    (_T, _M.OTHER): Cell((Step.STRAY,), _T),
    (_C, _M.ROLE): Cell((Step.CUT, Step.ROLE), _H),
    (_C, _M.KIND): Cell((Step.CUT, Step.OPEN), _T),
    (_C, _M.CALL): Cell((Step.CUT, Step.OPEN), _C),
    (_C, _M.END): Cell((Step.CLOSE,), _B),
    (_C, _M.STOP): Cell((Step.CUT, Step.STOP), _B),
    (_C, _M.OTHER): Cell((Step.STRAY,), _C),
}

_UNKNOWN = (_M.ROLE, _M.END, _M.STOP, _M.OTHER)
STRICT_TABLE: Table = {
    # Without a role marker only a kind marker counts; all else there is dropped.
    (_B, _M.ROLE): Cell((Step.DROP, Step.ROLE), _H),
    (_B, _M.KIND): Cell((Step.DROP, Step.OPEN), _T),
    (_B, _M.CALL): Cell((Step.DROP, Step.OPEN), _C),
    (_B, _M.END): Cell((Step.DROP,), _B),
    (_B, _M.STOP): Cell((Step.DROP, Step.STOP), _B),
    (_B, _M.OTHER): Cell((Step.DROP,), _B),
    # After one, the next special token is the kind, and may be one that nobody knows.
    (_H, _M.KIND): Cell((Step.OPEN,), _T),
    (_H, _M.CALL): Cell((Step.OPEN,), _C),
    **{(_H, marker): Cell((Step.OPEN,), _T) for marker in _UNKNOWN},
    # Inside a block only its end is more than its spelling.
    **{(state, marker): Cell((Step.LITERAL,), state) for state in (_T, _C) for marker in _M},
    (_T, _M.END): Cell((Step.CLOSE,), _B),
    (_C, _M.END): Cell((Step.CLOSE,), _B),
}
