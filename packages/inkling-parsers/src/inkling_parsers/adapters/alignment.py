"""Cut a detokenizer's text at the special ids of the same stream.

A server hands a parser two views of the same tokens: ids, and text in which a special token and
ordinary tokens that spell its name look the same. Only together do they say which is which:

    ids    o o o S o o ...        text   "ab<|x|>c<|x|>de"        S is spelled <|x|>
    run 1  = decode(o o o)        the cut lies len(run 1) characters into the text

Text may lag behind ids (stop strings are held back, half a character is not yet text), it may end
before them (a stop string cuts it, a stop token is not shown) and special tokens may be left out
of it: the first one shows which. It never runs ahead. Not here: what a special token means
(`inkling_parsers.parser`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_SLACK = 2  # characters


class Piece(NamedTuple):
    """`special` is the id of one special token, or None for ordinary text. `text` spells it."""

    special: int | None
    text: str


class _Closed(NamedTuple):
    """An ordinary run whose length is known because a special token ended it."""

    length: int
    special: int


class TokenText:
    """One stream's ids and text, cut into pieces. Linear; keeps unread text and the open run's ids.

    `decode` turns ordinary ids into text and must join: decode(a + b) == decode(a) + decode(b),
    halves of one character aside. `specials` maps each special id to its spelling.
    """

    def __init__(self, decode: Callable[[list[int]], str], specials: Mapping[int, str]) -> None:
        self._decode = decode
        self._specials = specials
        self._special = frozenset(specials)
        self._shows_specials: bool | None = None  # until a first special token tells
        self._closed: deque[_Closed] = deque()
        self._open_run: list[int] = []
        self._text = ""
        self._at = 0  # everything before this offset of _text went out
        self._released = 0  # characters of the first run that went out already

    def passes(self, text: str, ids: Sequence[int]) -> bool:
        """Whether this delta is ordinary text as it stands, which most are: nothing is held and no
        id is special. Then it counts as fed."""
        if self._closed or not self._special.isdisjoint(ids):
            return False
        self._open_run += ids
        self._released += len(text)
        return True

    def feed(self, text: str, ids: Sequence[int]) -> list[Piece]:
        """The pieces that this delta settles, in order; adjacent text may come in several."""
        if self.passes(text, ids):
            return [Piece(None, text)] if text else []
        for token in ids:
            if token in self._specials:
                length = len(self._decode(self._open_run)) if self._open_run else 0
                self._closed.append(_Closed(length, token))
                self._open_run = []
            else:
                self._open_run.append(token)
        self._text = self._text[self._at :] + text
        self._at = 0
        pieces: list[Piece] = []
        while self._closed and self._settle_first(pieces, finished=False):
            pass
        if not self._closed:
            self._release_to(len(self._text), pieces)
        return pieces

    def finish(self) -> list[Piece]:
        """The rest. Ids whose text was cut off by a stop string are dropped with it."""
        pieces: list[Piece] = []
        while self._closed and self._settle_first(pieces, finished=True):
            pass
        self._closed.clear()
        self._release_to(len(self._text), pieces)
        return pieces

    def _settle_first(self, pieces: list[Piece], finished: bool) -> bool:
        """Release the first closed run and its special token; False while its text is missing."""
        length, special = self._closed[0]
        name = self._specials[special]
        cut = max(self._at + length - self._released, self._at)
        if cut > len(self._text):
            self._release_to(len(self._text), pieces)
            return False
        start = cut
        if self._shows_specials is not False:
            shown = self._text[cut : cut + len(name)]
            start = cut if name.startswith(shown) else self._near(cut, name)
            is_there = start >= 0 and self._text.startswith(name, start)
            if is_there:
                self._shows_specials = True
            elif start < 0 and self._shows_specials is None:
                self._shows_specials = False  # the first name is nowhere: none is shown
            elif not finished:
                self._release_to(cut, pieces)
                return False
        self._settle(cut if start < 0 else start, name, pieces)
        pieces.append(Piece(special, name))
        self._closed.popleft()
        self._released = 0
        return True

    def _near(self, cut: int, name: str) -> int:
        """Where `name` starts next to `cut`, or -1: some decoders add or drop a space at an end."""
        first = max(cut - _SLACK, self._at)
        return self._text.find(name, first, cut + _SLACK + len(name))

    def _settle(self, end: int, name: str, pieces: list[Piece]) -> None:
        """Release text up to `end` and skip `name` there, or what a stop string left of it."""
        self._release_to(end, pieces)
        shown = self._text[end : end + len(name)]
        if self._shows_specials is not False and name.startswith(shown):
            self._at = end + len(shown)

    def _release_to(self, end: int, pieces: list[Piece]) -> None:
        if end > self._at:
            pieces.append(Piece(None, self._text[self._at : end]))
            self._released += end - self._at
            self._at = end
