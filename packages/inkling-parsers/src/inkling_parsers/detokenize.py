"""Text of ordinary token ids, never half a character. Not a tokenizer: the caller brings that.

A byte-level vocabulary cuts characters between tokens. `decode` answers bytes, which an
incremental UTF-8 decoder joins; or text, in which a cut character shows as a U+FFFD at the end
and is held until more ids complete it.

Bytes that are no UTF-8 become U+FFFD, or with `strict` lone surrogates (U+DC80 to U+DCFF, Python's
`surrogateescape`), which no valid text holds, so that `strict.is_cut` can tell.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

Decode = Callable[[list[int]], "str | bytes"]

_CUT = "\ufffd"
_MOST_HELD = 16  # ids; four bytes make a character, so a longer U+FFFD is no cut character


class Detokenizer:
    """Decodes runs of ids; state is the start of one character."""

    def __init__(self, decode: Decode, strict: bool = False) -> None:
        self._decode = decode
        self._held: list[int] = []
        self._utf8 = codecs.getincrementaldecoder("utf-8")(
            errors="surrogateescape" if strict else "replace"
        )

    @property
    def dirty(self) -> bool:
        """Whether the start of a character is held."""
        return bool(self._held) or bool(self._utf8.getstate()[0])

    def text(self, run: list[int], final: bool) -> str:
        """Text that `run` makes certain; with `final`, all of it: the run ends here."""
        ids = self._held + run
        raw = self._decode(ids) if ids else b""
        if isinstance(raw, bytes):
            return self._utf8.decode(raw, final)
        if final or not raw.endswith(_CUT):
            self._held = []
            return raw
        self._held = ids
        return self._release(raw) if len(ids) >= _MOST_HELD else ""

    def _release(self, raw: str) -> str:
        """Hand on all but the last ids, where cutting there changes nothing."""
        for size in (1, 2, 3):
            head, tail = self._decode(self._held[:-size]), self._decode(self._held[-size:])
            if isinstance(head, str) and isinstance(tail, str) and head + tail == raw:
                self._held = self._held[-size:]
                return head
        self._held = []
        return raw
