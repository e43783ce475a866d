"""The vLLM reasoning parsers: `InklingReasoningParser`, and `Inkling2ReasoningParser` as its alias.

vLLM composes this class with a tool parser and drives both through one `DelegatingParser`. When it
does so by the classes registered here, `served` answers for both and only the questions about token
ids below are asked of this object. Driven on its own, it parses everything that it is given, and a
tool call, which it has no field for, becomes content without its markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm.reasoning import ReasoningParser

from inkling_parsers.adapters.answer import AnswerDelta
from inkling_parsers.adapters.answer_stream import AnswerStream, Calls
from inkling_parsers.adapters.vllm.protocol import DeltaMessage, delta_message
from inkling_parsers.adapters.vllm.served import Composable
from inkling_parsers.adapters.vllm.tokens import tokens_of
from inkling_parsers.markers import Marker


class InklingReasoningParser(ReasoningParser, metaclass=Composable):
    """`--reasoning-parser inkling_py`."""

    engine_based_streaming = True  # each call gets the new text and ids alone

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self._tokens = tokens_of(tokenizer)
        self._prompt_ids: Sequence[int] | None = None
        self._stream: AnswerStream | None = None
        ids = self._tokens.special.ids
        openers = (
            Marker.CONTENT_TEXT,
            Marker.CONTENT_INVOKE_TOOL_JSON,
            Marker.CONTENT_INVOKE_TOOL_TEXT,
            Marker.CONTENT_TOOL_ERROR,
        )
        self._thinking = ids[Marker.CONTENT_THINKING]
        self._undecided = frozenset({self._thinking, ids[Marker.MESSAGE_MODEL]})
        self._decided = frozenset(
            {*(ids[opener] for opener in openers if opener in ids), *self._tokens.special.stop_ids}
        )
        self._closers = frozenset({ids[Marker.END_MESSAGE], *self._tokens.special.stop_ids})

    @property
    def reasoning_start_str(self) -> str:
        return Marker.CONTENT_THINKING.value

    @property
    def reasoning_end_str(self) -> str:
        return Marker.END_MESSAGE.value

    # Questions about ids: vLLM's grammar gate asks them in the engine, in every configuration.

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether an answer block is open, or the answer over, after these ids.

        A closed thinking block is not the end: another may follow, and a JSON grammar may only
        start behind <|content_text|>.
        """
        for token in reversed(input_ids):
            if token in self._undecided:
                return False
            if token in self._decided:
                return True
        return False

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int]
    ) -> bool:
        """The same for the newest ids alone, so that a step costs no scan of the whole answer."""
        return self.is_reasoning_end(list(delta_ids))

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """The ids behind the last thinking block; none while one is open."""
        for at in range(len(input_ids) - 1, -1, -1):
            if input_ids[at] == self._thinking:
                for end in range(at, len(input_ids)):
                    if input_ids[end] in self._closers:
                        return input_ids[end + 1 :]
                return []
        return input_ids

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Ordinary ids in thinking blocks; a block that the prompt opened counts too."""
        markers = self._tokens.special.markers
        inside = self._prompt_ids is not None and self._opens_thinking(self._prompt_ids)
        count = 0
        for token in token_ids:
            if token in markers:
                inside = token == self._thinking
            elif inside:
                count += 1
        return count

    def _opens_thinking(self, prompt_ids: Sequence[int]) -> bool:
        markers = self._tokens.special.markers
        last = next((token for token in reversed(prompt_ids) if token in markers), None)
        return last == self._thinking

    def adjust_request(self, request: Any) -> Any:
        """Keep special tokens in the text; without them it cannot be taken apart."""
        request.skip_special_tokens = False
        return request

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        self._prompt_ids = prompt_token_ids

    def set_prompt_token_ids(self, prompt_token_ids: Sequence[int]) -> None:
        self._prompt_ids = prompt_token_ids

    # Parsing on its own.

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """Reasoning and content of a whole answer given as text."""
        stream = AnswerStream(self._tokens, self._prompt_ids, Calls.SHOWN)
        news = stream.feed(model_output).joined(stream.finish())
        return news.reasoning or None, news.content or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """The delta's reasoning and content; reads the delta, not what came before it."""
        if self._stream is None:
            self._stream = AnswerStream(self._tokens, self._prompt_ids, Calls.SHOWN)
        return delta_message(self._stream.feed(delta_text, delta_token_ids))

    def has_engine_confirmed_reasoning_end(self) -> bool:
        """Never: this parser reads the answer to its end."""
        return False

    def finish_streaming(self) -> DeltaMessage | None:
        news = AnswerDelta() if self._stream is None else self._stream.finish()
        self._stream = None
        return delta_message(news)


class Inkling2ReasoningParser(InklingReasoningParser):
    """`--reasoning-parser inkling2_py`: the same grammar, as far as is published."""
