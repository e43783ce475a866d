"""vLLM's answer types, wherever the installed version keeps them (0.26 to 0.33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from vllm.entrypoints.generate.base.protocol import (
        DeltaFunctionCall,
        DeltaMessage,
        DeltaToolCall,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )
except ModuleNotFoundError:
    if TYPE_CHECKING:
        raise
    # Before 0.30.
    from vllm.entrypoints.openai.engine.protocol import (
        DeltaFunctionCall,
        DeltaMessage,
        DeltaToolCall,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )

from inkling_parsers.adapters.answer import AnswerDelta, CallDelta

__all__ = [
    "DeltaMessage",
    "ExtractedToolCallInformation",
    "FunctionCall",
    "delta_message",
    "extracted",
    "function_calls",
]


def delta_message(news: AnswerDelta) -> DeltaMessage | None:
    """A streaming delta; None where there is no news."""
    if not news:
        return None
    # Only what is set is sent: vLLM leaves unset fields out of a chunk.
    fields: dict[str, Any] = {}
    if news.reasoning:
        fields["reasoning"] = news.reasoning
    if news.content:
        fields["content"] = news.content
    if news.calls:
        fields["tool_calls"] = [_call_delta(call) for call in news.calls]
    return DeltaMessage(**fields)


def _call_delta(call: CallDelta) -> DeltaToolCall:
    if call.id is None:
        return DeltaToolCall(index=call.index, function=DeltaFunctionCall(arguments=call.arguments))
    return DeltaToolCall(
        index=call.index,
        id=call.id,
        type="function",
        function=DeltaFunctionCall(name=call.name, arguments=call.arguments),
    )


def function_calls(news: AnswerDelta) -> list[FunctionCall]:
    """The calls of a whole answer."""
    return [
        FunctionCall(id=call.id, name=call.name or "", arguments=call.arguments)
        for call in news.calls
    ]


def extracted(news: AnswerDelta) -> ExtractedToolCallInformation:
    """A whole answer in the form that a tool parser on its own returns."""
    calls = [ToolCall(id=call.id or "", function=call) for call in function_calls(news)]
    return ExtractedToolCallInformation(
        tools_called=bool(calls), tool_calls=calls, content=news.content or None
    )
