"""Splits a stream into markers and ordinary text. What they mean is `grammar`'s business.

Two lexers, one output: a list of `(marker, text)` pairs, where `marker` is None for ordinary
text and `text` is the spelling otherwise.

* `IdLexer` reads token ids. A special id is a marker; whatever ordinary tokens spell is text.
* `TextLexer` reads decoded text, where a marker and text that spells one look the same and both
  count as the marker. It holds back the start of a possible marker, at most 32 characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from inkling_parsers.detokenize import Decode, Detokenizer
from inkling_parsers.markers import SPELLINGS, Marker, SpecialTokens

Piece = tuple[Marker | None, str]

_MARKER = re.compile(
    r"<\|(?:"
    + "|".join(re.escape(name[2:-2]) for name in sorted(SPELLINGS, key=len, reverse=True))
    + r")\|>"
)
_STARTS = frozenset(name[:size] for name in SPELLINGS for size in range(1, len(name)))
_LONGEST = max(len(name) for name in SPELLINGS)


class TextLexer:
    """Decoded text in, pieces out; state is the held start of a possible marker."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        """Pieces that `text` makes certain."""
        if "<" not in text and not self._held:
            return [(None, text)] if text else []
        if self._held:
            text = self._held + text
            self._held = ""
        pieces: list[Piece] = []
        start = 0
        for match in _MARKER.finditer(text):
            if match.start() > start:
                pieces.append((None, text[start : match.start()]))
            name = match.group()
            pieces.append((SPELLINGS[name], name))
            start = match.end()
        end = self._hold(text, start)
        if end > start:
            pieces.append((None, text[start:end]))
        return pieces

    def _hold(self, text: str, start: int) -> int:
        """Keep the start of a possible marker at the end of `text`; returns where it begins.

        No marker holds a second `<`, so only the last one can begin one.
        """
        begin = text.rfind("<", max(start, len(text) - _LONGEST + 1))
        if begin < 0 or text[begin:] not in _STARTS:
            return len(text)
        self._held = text[begin:]
        return begin

    def finish(self) -> list[Piece]:
        """What was held back turns out to be text."""
        held, self._held = self._held, ""
        return [(None, held)] if held else []


class IdLexer:
    """Token ids in, pieces out; state is the undecoded start of one character.

    The text of ordinary ids comes with them (`texts`, one string per id) or from `decode`
    (see `detokenize`, also for `strict`).
    """

    def __init__(
        self, tokens: SpecialTokens, decode: Decode | None = None, strict: bool = False
    ) -> None:
        self._markers = tokens.markers
        self._special = frozenset(tokens.markers)
        self._names = tokens.names
        self._detokenizer = Detokenizer(decode, strict) if decode is not None else None

    def feed(self, ids: Sequence[int], texts: Sequence[str] | None = None) -> list[Piece]:
        """Pieces of `ids`. Raises ValueError where there is no text for an ordinary id."""
        if texts is not None and len(texts) != len(ids):
            raise ValueError(f"{len(ids)} ids came with {len(texts)} texts; give one text per id")
        pieces: list[Piece] = []
        if self._special.isdisjoint(ids):
            self._ordinary(ids, texts, False, pieces)
            return pieces
        markers = self._markers
        start = 0
        for at, id_ in enumerate(ids):
            if id_ in markers:
                self._ordinary(ids[start:at], texts and texts[start:at], True, pieces)
                pieces.append((markers[id_], self._names[id_]))
                start = at + 1
        self._ordinary(ids[start:], texts and texts[start:], False, pieces)
        return pieces

    def _ordinary(
        self, run: Sequence[int], texts: Sequence[str] | None, final: bool, pieces: list[Piece]
    ) -> None:
        detokenizer = self._detokenizer
        if texts is not None:
            text = "".join(texts)
        elif detokenizer is not None:
            if not run and not detokenizer.dirty:
                return
            text = detokenizer.text(list(run), final)
        elif run:
            raise ValueError(
                f"no text for the ordinary id {run[0]}: pass texts= with the ids, "
                "or decode= when the parser is made"
            )
        else:
            return
        if text:
            pieces.append((None, text))

    def finish(self) -> list[Piece]:
        """The rest of a cut character."""
        pieces: list[Piece] = []
        self._ordinary((), None, True, pieces)
        return pieces
