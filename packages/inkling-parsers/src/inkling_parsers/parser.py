"""The public parser: feed a stream and get events, or parse a whole answer, which is the same.

Not the grammar (`grammar`), not the machine (`machine`): this binds a lexer, the machine and the
prompt together.

    ids mode    special ids are structure, whatever ordinary tokens spell is text
    text mode   for where ids are not to be had: text that spells a marker counts as the marker
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inkling_parsers.detokenize import Decode
from inkling_parsers.events import Event, Termination
from inkling_parsers.lexer import IdLexer, Piece, TextLexer
from inkling_parsers.machine import BlockMachine
from inkling_parsers.markers import CLASSES, Marker, MarkerClass, SpecialTokens
from inkling_parsers.result import Parsed
from inkling_parsers.trim import Trim

_BOUNDARIES = frozenset({MarkerClass.ROLE, MarkerClass.END, MarkerClass.STOP})


class StreamParser:
    """One answer, parsed as it comes.

    `tokens`: the special ids; with them the parser reads ids, without them text.
    `decode`: text or UTF-8 bytes of a run of ordinary ids, unless `feed` gets the texts.
    `prompt`: the prompt in the same form (its end is enough): blocks that it leaves open go on.
    A prompt of ids that ends within a header or a call needs `decode` for its words.
    `strict`: the model owner's rules, with errors (see `strict`) instead of diagnostics; broken
    UTF-8 is one of them where `decode` gives bytes.
    `trim`: drop whitespace as vLLM does (see `trim`).
    `tool_choice`: as in a chat request; "none" refuses tool calls, nothing else has an effect.
    `header_limit`: characters of text held between blocks before they count as the answer, which
    they do at once if they have a second line.
    """

    def __init__(
        self,
        tokens: SpecialTokens | None = None,
        *,
        decode: Decode | None = None,
        prompt: str | Sequence[int] | None = None,
        strict: bool = False,
        trim: bool = False,
        tool_choice: str | Mapping[str, Any] | None = None,
        header_limit: int = 256,
    ) -> None:
        self.termination: Termination | None = None
        self._tokens = tokens
        self._text_lexer = TextLexer()
        self._id_lexer = IdLexer(tokens, decode, strict) if tokens is not None else None
        self._machine = BlockMachine(strict, tool_choice != "none", header_limit)
        self._trim = Trim() if trim else None
        if prompt:
            self._read_prompt(prompt, decode)

    def feed(self, delta: str | Sequence[int], texts: Sequence[str] | None = None) -> list[Event]:
        """Events that `delta` makes certain.

        `delta` is text, or ids with `texts`, one string for each (those of special ids are not
        looked at). Raises TypeError for ids without `tokens`, ValueError after `finish`.
        """
        return self.feed_pieces(self._lex(delta, texts))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Event]:
        """The same from a lexer of the caller's own: (marker, its spelling), (None, text), ...

        No text is empty. Raises ValueError after `finish`.
        """
        if self.termination is not None:
            raise ValueError("this answer was finished; make a new StreamParser for the next one")
        machine = self._machine
        machine.run(pieces)
        return machine.take() if self._trim is None else self._trim(machine.take())

    def _lex(self, delta: str | Sequence[int], texts: Sequence[str] | None) -> list[Piece]:
        if isinstance(delta, str):
            if self._id_lexer is not None:
                raise TypeError("got text, but the parser has tokens=; feed ids, or leave them out")
            return self._text_lexer.feed(delta)
        if self._id_lexer is None:
            raise TypeError("got ids, but the parser has no tokens=; see SpecialTokens.from_vocab")
        return self._id_lexer.feed(delta, texts)

    def goes_on_with(self, text: str) -> int | None:
        """The index of the call whose arguments the ordinary `text` goes on with, where feeding it
        would give that one `ArgumentsDelta` and change nothing; else None, and it has to be fed."""
        payload = self._machine.payload
        return payload.index if payload is not None and payload.flows(text) else None

    def finish(self, stopped: bool = False) -> list[Event]:
        """The last events; sets `termination`.

        `stopped`: the engine met a stop token and kept it to itself.
        """
        if self.termination is not None:
            return []
        lexer = self._text_lexer if self._id_lexer is None else self._id_lexer
        self._machine.run(lexer.finish())
        if stopped and not self._machine.stopped:
            stop = Marker.CONTENT_MODEL_END_SAMPLING
            self._machine.marker(stop, stop.value)
        self.termination = self._machine.end()
        events = self._machine.take()
        return events if self._trim is None else self._trim(events) + self._trim.finish()

    def _read_prompt(self, prompt: str | Sequence[int], decode: Decode | None) -> None:
        """Run the machine over the prompt's last block, and keep only where that leaves it."""
        if isinstance(prompt, str):
            lexer = TextLexer()
            pieces = lexer.feed(prompt) + lexer.finish()
        else:
            pieces = self._prompt_pieces(prompt, decode)
        starts = [
            at for at, (marker, _) in enumerate(pieces) if marker and CLASSES[marker] in _BOUNDARIES
        ]
        self._machine.begin_prompt()
        self._machine.run(pieces[starts[-1] :] if starts else pieces)
        self._machine.begin_answer()

    def _prompt_pieces(self, prompt: Sequence[int], decode: Decode | None) -> list[Piece]:
        if self._tokens is None:
            raise TypeError("the prompt is ids, but the parser has no tokens=")
        markers = self._tokens.markers
        start = len(prompt)
        while start > 0:
            start -= 1
            marker = markers.get(prompt[start])
            if marker is not None and CLASSES[marker] in _BOUNDARIES:
                break
        lexer = IdLexer(self._tokens, decode or _no_text)
        return lexer.feed(prompt[start:]) + lexer.finish()


def _no_text(ids: list[int]) -> str:
    """The prompt's words matter only where a header or a call is cut between prompt and answer."""
    return ""


def parse(
    answer: str | Sequence[int],
    tokens: SpecialTokens | None = None,
    *,
    texts: Sequence[str] | None = None,
    stopped: bool = False,
    **options: Any,
) -> Parsed:
    """Parse a whole answer: a stream in one go. `options` are those of `StreamParser`."""
    parser = StreamParser(tokens, **options)
    events = parser.feed(answer, texts)
    events += parser.finish(stopped)
    assert parser.termination is not None
    return Parsed.collect(events, parser.termination)
