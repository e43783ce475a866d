"""The vLLM tool parsers: `InklingToolParser`, and `Inkling2ToolParser` as its alias.

Composed by vLLM with the reasoning parser registered here, or with none, `served` answers for both
and this object only prepares requests: text with its special tokens, and the grammar for a forced
tool choice. Driven on its own it parses everything that it is given and leaves thoughts out, which
are the reasoning parser's to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vllm.envs as envs
from vllm.logger import init_logger
from vllm.tool_parsers import ToolParser

from inkling_parsers.adapters.answer import AnswerDelta
from inkling_parsers.adapters.answer_stream import AnswerStream
from inkling_parsers.adapters.vllm.protocol import (
    DeltaMessage,
    ExtractedToolCallInformation,
    delta_message,
    extracted,
)
from inkling_parsers.adapters.vllm.requests import (
    calls_policy,
    coercion_tools,
    grammar_covers_reasoning,
    openai_choice,
    openai_tools,
)
from inkling_parsers.adapters.vllm.served import Composable
from inkling_parsers.adapters.vllm.tokens import tokens_of
from inkling_parsers.structural_tag import structural_tag

logger = init_logger(__name__)

_CALLS_ARE_HELD, _ARGUMENTS_ARE_HELD = 1, 2  # vLLM's ToolStrictLevel, which 0.26 has not


class InklingToolParser(ToolParser, metaclass=Composable):
    """`--tool-call-parser inkling_py`."""

    engine_based_streaming = True  # each call gets the new text and ids alone
    # vLLM asks for a grammar only where this names one; get_structural_tag below supplies it.
    structural_tag_model = "inkling_py"
    # Forced calls come in the model's own format, not as the bare JSON that vLLM would demand.
    supports_required_and_named = False
    # Set by the composed parser where no reasoning parser is configured.
    skip_reasoning_parsing = False

    def __init__(self, tokenizer: Any, tools: Any = None, **_: Any) -> None:
        super().__init__(tokenizer, tools)
        self._tokens = tokens_of(tokenizer)
        self._stream: AnswerStream | None = None
        self._made_grammar = False

    # Requests.

    def get_structural_tag(
        self, request: Any, *, reasoning: bool = False, strict_level: Any = 0
    ) -> Any:
        """The grammar for the request's tool choice, thinking included; None where none applies.

        `auto` is held only if a tool says `strict` or the server demands it. Raises ValueError for
        a choice or a schema that cannot be enforced.
        """
        self._made_grammar = False
        if not envs.VLLM_ENFORCE_STRICT_TOOL_CALLING or not request.tools:
            return None
        tools = openai_tools(request.tools)
        level = int(strict_level or 0)
        choice = openai_choice(request.tool_choice)
        is_strict = any(tool["function"].get("strict") is True for tool in tools)
        if choice in (None, "auto") and level < _CALLS_ARE_HELD and not is_strict:
            return None
        if not self.skip_reasoning_parsing and not grammar_covers_reasoning(request):
            logger.warning_once(
                "inkling_py does not enforce tool_choice here: this vLLM has no way to start a "
                "grammar before the reasoning ends in the Responses API (0.33 has)."
            )
            return None
        tag = structural_tag(
            tools,
            choice,
            reasoning=True,
            strict=level >= _ARGUMENTS_ARE_HELD,
            parallel=request.parallel_tool_calls is not False,
            tokens=self._tokens.special,
        )
        if tag is None:
            return None
        from xgrammar import StructuralTag

        self._made_grammar = True
        return StructuralTag.model_validate(tag)

    def adjust_request(self, request: Any) -> Any:
        """Keep special tokens in the text, and start our grammar with the first token."""
        request.skip_special_tokens = False
        if self._made_grammar:
            grammar_covers_reasoning(request, say_so=True)
        return request

    # Parsing on its own.

    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        """Content and calls of a whole answer given as text."""
        stream = self._new_stream(request)
        return extracted(stream.feed(model_output).joined(stream.finish()))

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> DeltaMessage | None:
        """The delta's content and calls; reads the delta, not what came before it."""
        if self._stream is None:
            self._stream = self._new_stream(request)
        news = self._stream.feed(delta_text, delta_token_ids)
        return delta_message(AnswerDelta("", news.content, news.calls))

    def finish_streaming(self) -> DeltaMessage | None:
        news = AnswerDelta() if self._stream is None else self._stream.finish()
        self._stream = None
        return delta_message(AnswerDelta("", news.content, news.calls))

    def _new_stream(self, request: Any) -> AnswerStream:
        policy = calls_policy(request, has_tool_parser=True)
        return AnswerStream(self._tokens, None, policy, coercion_tools(request))


class Inkling2ToolParser(InklingToolParser):
    """`--tool-call-parser inkling2_py`: the same format, as far as is published."""

    structural_tag_model = "inkling2_py"
