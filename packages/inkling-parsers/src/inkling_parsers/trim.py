"""Optional trimming of whitespace, as vLLM's own parser does it. Off unless asked for.

Parsing keeps whitespace: it is content, and an exact re-rendering needs it. With `trim=True`

* whitespace at the end of a thinking block is dropped, and
* content that is whitespace so far is dropped where a tool call follows it.

Both are decided as late as they must be, so a stream gives what the whole gives.
"""

from __future__ import annotations

from inkling_parsers.events import BlockEnd, ContentDelta, Event, ReasoningDelta, ToolCallStart


class Trim:
    """A filter of events; state is the whitespace held, and the block events around it."""

    def __init__(self) -> None:
        self._reasoning = ""
        self._held: list[Event] = []
        self._decided = False  # content from here on is passed as it comes

    def __call__(self, events: list[Event]) -> list[Event]:
        kept: list[Event] = []
        for event in events:
            if isinstance(event, ReasoningDelta):
                self._reason(event.text, kept)
            elif self._decided:
                self._pass(event, kept)
            else:
                self._decide(event, kept)
        return kept

    def _reason(self, text: str, kept: list[Event]) -> None:
        text = self._reasoning + text
        shown = text.rstrip()
        self._reasoning = text[len(shown) :]
        if shown:
            kept += self._held
            self._held = []
            kept.append(ReasoningDelta(shown))

    def _decide(self, event: Event, kept: list[Event]) -> None:
        """Content so far is whitespace, if there is any."""
        if isinstance(event, ContentDelta):
            self._held.append(event)
            self._decided = bool(event.text.strip())
        elif isinstance(event, ToolCallStart):
            self._held = [held for held in self._held if not isinstance(held, ContentDelta)]
            self._decided = True
        if self._decided:
            kept += self._held
            self._held = []
        if not isinstance(event, ContentDelta):
            self._pass(event, self._held if self._held else kept)

    def _pass(self, event: Event, kept: list[Event]) -> None:
        if isinstance(event, BlockEnd):
            self._reasoning = ""
        kept.append(event)

    def finish(self) -> list[Event]:
        """Content that was whitespace to the end."""
        held, self._held = self._held, []
        return held
