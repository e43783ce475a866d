"""Decides whether `&quot;` inside a JSON string is text or a quote that the model mis-sampled.

Not a repair by itself: `call` holds the text, `json_span` reads it once the answer is known. Text
is the first guess and wins wherever it can: only when the string, read so, is never closed, or is
closed where no JSON could go on, was the entity the closing quote.
"""

from __future__ import annotations

import re

MAX_HELD = 1 << 16  # characters; a longer string keeps its entities

_TO_QUOTE = re.compile(r'[^"\\]*')
_SPACE = re.compile(r"[ \t\n\r]*")


class Doubt:
    """Holds text from the entity on until the end of the string tells. O(1) state beside it."""

    def __init__(self, is_key: bool) -> None:
        self._held: list[str] = []
        self._size = 0
        self._follows = ":" if is_key else ",}]"
        self._escaped = False
        self._closed = False

    @property
    def text(self) -> str:
        """All that is held."""
        return "".join(self._held)

    def feed(self, text: str, pos: int = 0) -> bool | None:
        """Read on from `pos`. True: the entity is text. False: it is a quote. None: not known
        yet, and the text is held."""
        before = self._size - pos
        found = pos if self._closed else self._to_quote(text, pos)
        if self._closed:
            match = _SPACE.match(text, found)
            found = match.end() if match else found
            if found < len(text) and before + found < MAX_HELD:
                return text[found] in self._follows
        if before + len(text) >= MAX_HELD:
            return True
        self._held.append(text[pos:])
        self._size = before + len(text)
        return None

    def _to_quote(self, text: str, pos: int) -> int:
        end = len(text)
        while pos < end:
            if self._escaped:
                self._escaped = False
                pos += 1
                continue
            match = _TO_QUOTE.match(text, pos)
            pos = match.end() if match else pos
            if pos < end:
                self._closed = text[pos] == '"'
                self._escaped = not self._closed
                pos += 1
                if self._closed:
                    return pos
        return pos

    def at_end(self, proper: bool) -> bool:
        """The answer when the payload ends here, `proper` if by its own end marker."""
        return self._closed or not proper
