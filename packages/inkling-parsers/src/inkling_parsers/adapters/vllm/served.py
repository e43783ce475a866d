"""One parser for both of vLLM's: what the composed `DelegatingParser` does with our classes.

vLLM drives a reasoning parser and a tool parser one after the other. The tool pass then gets text
that was taken apart and put together again, with ids that no longer belong to it, neither pass sees
the prompt of a whole answer, and a pass that is not configured passes its markers on as text. The
format needs one pass over ids and text, so the composed class is given methods that do that:

    class _Parser(DelegatingParser):            vLLM's own composition, one per server
        reasoning_parser_cls = Inkling...       Python tells a class attribute's type its owner
        tool_parser_cls = Inkling... or None    (__set_name__), and here the methods are put on

Nothing of vLLM is patched: the class is this server's own. A composition with somebody else's
parser is left as it is. Request preparation stays with vLLM and the two parser objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.parser.abstract_parser import DelegatingParser
from vllm.parser.metrics import record_tool_parser_invocation

from inkling_parsers.adapters.answer_stream import AnswerStream
from inkling_parsers.adapters.vllm.protocol import (
    DeltaMessage,
    FunctionCall,
    arguments_message,
    delta_message,
    function_calls,
)
from inkling_parsers.adapters.vllm.requests import calls_policy, coercion_tools
from inkling_parsers.adapters.vllm.tokens import tokens_of

_ROLES = ("reasoning_parser_cls", "tool_parser_cls")
_TAKEN_OVER = (
    "parse",
    "parse_delta",
    "set_prompt_token_ids",
    "adjust_request",
    "always_adjust_request",
)


class Composable(type):
    """The metaclass of our two parsers: takes over a composed class that holds only them."""

    def __set_name__(cls, owner: type, name: str) -> None:
        if name not in _ROLES or not issubclass(owner, DelegatingParser):
            return
        parts = [part for part in (getattr(owner, role, None) for role in _ROLES) if part]
        if not all(isinstance(part, Composable) for part in parts):
            return
        for attribute in _TAKEN_OVER:
            setattr(owner, attribute, vars(_OnePass)[attribute])


class _OnePass:
    """Methods for a `DelegatingParser` subclass; `self` is its instance, one per answer."""

    # Ask for special tokens in the text whatever the request says about tools (vLLM 0.32 on).
    always_adjust_request = True

    def set_prompt_token_ids(self: Any, prompt_token_ids: Sequence[int]) -> None:
        """vLLM says which prompt a whole answer belongs to (0.32 on; before, nothing does)."""
        self._inkling_prompt_ids = prompt_token_ids
        if self.reasoning_parser is not None:
            self.reasoning_parser.set_prompt_token_ids(prompt_token_ids)

    def adjust_request(self: Any, request: Any) -> Any:
        """vLLM's own, once the tool parser knows whether it is alone (0.26 and 0.30 do not say)."""
        if self.tool_parser is not None:
            self.tool_parser.skip_reasoning_parsing = self.reasoning_parser is None
        return DelegatingParser.adjust_request(self, request)

    def parse(
        self: Any,
        model_output: str,
        request: Any,
        enable_auto_tools: bool = False,
        model_output_token_ids: Sequence[int] = (),
    ) -> tuple[str | None, str | None, list[FunctionCall] | None]:
        """A whole answer: a stream of one delta."""
        stream = _new_stream(self, request, getattr(self, "_inkling_prompt_ids", None))
        first = stream.feed(model_output, model_output_token_ids)
        news = first.joined(stream.finish())
        _count(self, request, bool(news.calls), is_streaming=False)
        return news.reasoning or None, news.content or None, function_calls(news) or None

    def parse_delta(
        self: Any,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: list[int] | None = None,
        *,
        finished: bool,
    ) -> DeltaMessage | None:
        """One delta of a stream; `finished` also ends it."""
        stream: AnswerStream | None = getattr(self, "_inkling_stream", None)
        if stream is None:
            if prompt_token_ids is not None:
                self.set_prompt_token_ids(prompt_token_ids)
            stream = _new_stream(self, request, getattr(self, "_inkling_prompt_ids", None))
            self._inkling_stream = stream
        index = None if finished else stream.goes_on_with(delta_text, delta_token_ids)
        if index is not None:
            _count(self, request, is_called=True, is_streaming=True)
            return arguments_message(index, delta_text)
        news = stream.feed(delta_text, delta_token_ids)
        if finished:
            news = news.joined(stream.finish())
            self._inkling_stream = None
        _count(self, request, bool(news.calls), is_streaming=True)
        if not request.include_reasoning:
            news.reasoning = ""
        return delta_message(news)


def _new_stream(parser: Any, request: Any, prompt_ids: Sequence[int] | None) -> AnswerStream:
    policy = calls_policy(request, has_tool_parser=parser.tool_parser is not None)
    tokens = tokens_of(parser.model_tokenizer)
    return AnswerStream(tokens, prompt_ids, policy, coercion_tools(request))


def _count(parser: Any, request: Any, is_called: bool, is_streaming: bool) -> None:
    """vLLM's counter of tool parser invocations, as its own path keeps it."""
    if parser.tool_parser is not None:
        record_tool_parser_invocation(
            is_tool_called=is_called, is_streaming=is_streaming, request=request
        )
