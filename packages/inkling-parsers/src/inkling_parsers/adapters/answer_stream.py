"""One answer of a server that streams text with ids: deltas in, news about the answer out.

    (text, ids) -> alignment.TokenText -> pieces -> StreamParser -> events -> answer.AnswerDelta

A whole answer is a stream of one delta. A server that has no ids gives text alone; then a marker
and text that spells one cannot be told apart. Not here: any server's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from inkling_parsers.adapters.alignment import Piece, TokenText
from inkling_parsers.adapters.answer import AnswerDelta, answer_delta
from inkling_parsers.coercion import Coercion
from inkling_parsers.events import Event
from inkling_parsers.markers import CLASSES, MarkerClass, SpecialTokens
from inkling_parsers.parser import StreamParser


class Calls(Enum):
    """What becomes of a tool call that the model makes."""

    SENT = "sent"  # as a tool call
    SHOWN = "shown"  # its payload as content: the server cannot send calls
    DROPPED = "dropped"  # the request said tool_choice "none"


@dataclass(frozen=True)
class Tokens:
    """What a tokenizer knows: `special` ids and their meaning, every special id's spelling
    (`names`), and `decode` for runs of ordinary ids."""

    special: SpecialTokens
    names: Mapping[int, str]
    decode: Callable[[list[int]], str]


class AnswerStream:
    """Parses one answer. `prompt_ids` say in which block generation starts; without them it is
    taken to start after <|message_model|>. `coerce_to` is the request's tools, for coercion."""

    def __init__(
        self,
        tokens: Tokens,
        prompt_ids: Sequence[int] | None = None,
        calls: Calls = Calls.SENT,
        coerce_to: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        self._tokens = tokens
        self._prompt_ids = prompt_ids
        self._calls = calls
        self._shows_calls = calls is Calls.SHOWN
        self._coercion = None if coerce_to is None else Coercion(coerce_to)
        self._parser: StreamParser | None = None
        self._pieces: TokenText | None = None  # None for a stream without ids

    def feed(self, text: str, ids: Sequence[int] = ()) -> AnswerDelta:
        """News from one delta. The first one decides whether this stream has ids."""
        if self._parser is None:
            if not text and not ids:
                return AnswerDelta()
            self._parser = self._start(has_ids=len(ids) > 0)
        if self._pieces is None:
            events = self._parser.feed(text)
        else:
            events = self._parse(self._parser, self._pieces.feed(text, ids))
        if self._coercion is not None:
            events = self._coercion.feed(events)
        return answer_delta(events, self._shows_calls)

    def goes_on_with(self, text: str, ids: Sequence[int]) -> int | None:
        """The index of the call whose arguments this delta only goes on with, and then it counts as
        fed; else None. Most deltas of a long call are such, and a server has to be quick there."""
        if not text or self._parser is None or self._pieces is None or self._coercion is not None:
            return None
        index = self._parser.goes_on_with(text)
        return index if index is not None and self._pieces.passes(text, ids) else None

    def finish(self) -> AnswerDelta:
        """What the end of the answer settles."""
        if self._parser is None:
            return AnswerDelta()
        events: list[Event] = []
        if self._pieces is not None:
            events += self._parse(self._parser, self._pieces.finish())
        events += self._parser.finish()
        if self._coercion is not None:
            events = self._coercion.feed(events) + self._coercion.finish()
        return answer_delta(events, self._shows_calls)

    def _start(self, has_ids: bool) -> StreamParser:
        choice = None if self._calls is Calls.SENT else "none"
        if not has_ids:
            return StreamParser(prompt=self._prompt_text(), tool_choice=choice)
        self._pieces = TokenText(self._tokens.decode, self._tokens.names)
        return StreamParser(
            self._tokens.special,
            decode=self._tokens.decode,
            prompt=self._prompt_ids,
            tool_choice=choice,
        )

    def _prompt_text(self) -> str:
        """The prompt from its last message on, as text."""
        ids = self._prompt_ids or ()
        markers = self._tokens.special.markers
        for at in range(len(ids) - 1, -1, -1):
            marker = markers.get(ids[at])
            if marker is not None and CLASSES[marker] in (MarkerClass.ROLE, MarkerClass.END):
                return self._tokens.decode(list(ids[at:]))
        return ""

    def _parse(self, parser: StreamParser, pieces: list[Piece]) -> list[Event]:
        markers, names = self._tokens.special.markers, self._tokens.special.names
        return parser.feed_pieces(
            (None, text) if special is None else (markers[special], names[special])
            for special, text in pieces
        )
