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
from inkling_parsers.adapters.vllm.unchecked import maker

__all__ = [
    "DeltaMessage",
    "ExtractedToolCallInformation",
    "FunctionCall",
    "arguments_message",
    "delta_message",
    "extracted",
    "function_calls",
]


# One of each is made per token, of strings that this package made: nothing is there to validate.
_message = maker(DeltaMessage, content="")
_tool_call = maker(DeltaToolCall, index=0, function=DeltaFunctionCall())
_function = maker(DeltaFunctionCall)


def delta_message(news: AnswerDelta) -> DeltaMessage | None:
    """A streaming delta; None where there is no news."""
    # Only what is set is sent: vLLM leaves unset fields out of a chunk.
    fields: dict[str, Any] = {}
    if news.reasoning:
        fields["reasoning"] = news.reasoning
    if news.content:
        fields["content"] = news.content
    if news.calls:
        fields["tool_calls"] = [_call_delta(call) for call in news.calls]
    elif not fields:
        return None
    return _message(fields)


def arguments_message(index: int, text: str) -> DeltaMessage:
    """A streaming delta that only goes on with a call's arguments."""
    function = _function({"arguments": text})
    return _message({"tool_calls": [_tool_call({"index": index, "function": function})]})


def _call_delta(call: CallDelta) -> DeltaToolCall:
    if call.id is None:
        function = _function({"arguments": call.arguments})
        return _tool_call({"index": call.index, "function": function})
    function = _function({"name": call.name, "arguments": call.arguments})
    return _tool_call(
        {"index": call.index, "id": call.id, "type": "function", "function": function}
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
