"""Text between blocks, held until it is known what it is: a header, or an answer without a marker.

    <|message_model|>get_weather<|content_invoke_tool_json|>    a kind marker follows: a header
    <|message_model|>Hello there.<|end_message|>                none follows: the answer

A reader of a stream should not wait for the end of such an answer. A header is the name of a tool
or of an author: it has one line, blank lines around it aside, and at most `limit` characters
(names of OpenAI's tools have 64, those of the Model Context Protocol 128).
"""

from __future__ import annotations


class HeldText:
    """Collects text; O(limit) state where its owner takes the text as soon as `add` says so."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._has_begun = False  # with something other than space
        self._has_line = False  # and a line end came after it

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> bool:
        """Hold `text`; whether all that is held can be no header any more."""
        self._pieces.append(text)
        self._size += len(text)
        return self._size > self._limit or self._is_second_line(text)

    def _is_second_line(self, text: str) -> bool:
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = bool(text)
        if not self._has_line:
            _, line_end, text = text.partition("\n")
            self._has_line = self._has_begun and bool(line_end)
        return self._has_line and bool(text.strip())

    def take(self) -> str:
        """The held text; then there is none."""
        text = "".join(self._pieces)
        self._clear()
        return text
