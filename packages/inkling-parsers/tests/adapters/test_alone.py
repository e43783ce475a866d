"""The two parser objects driven by themselves: what is left where vLLM composes them unseen.

Nothing leaks and a stream says what the whole says; a call without the joint parser is shown as
content by the reasoning parser, thoughts are left out by the tool parser.
"""

from __future__ import annotations

from typing import Any

import pytest

CALL = '{"name":"f","args":{"a":1}}'
SEGMENTS = [
    ("s", "<|content_thinking|>"), ("t", "p"), ("s", "<|end_message|>"), ("s", "<|message_model|>"),
    ("s", "<|content_text|>"), ("t", "c"), ("s", "<|end_message|>"), ("s", "<|message_model|>"),
    ("t", "f"), ("s", "<|content_invoke_tool_json|>"), ("t", CALL), ("s", "<|end_message|>"),
    ("s", "<|content_model_end_sampling|>"),
]  # fmt: skip
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def composed_unseen(reasoning: bool, tool: bool) -> Any:
    """A composition that Python announces to nobody: attributes set after the class was made."""
    from vllm.parser.abstract_parser import DelegatingParser

    from inkling_parsers.adapters.vllm.reasoning import InklingReasoningParser
    from inkling_parsers.adapters.vllm.tools import InklingToolParser

    class Unseen(DelegatingParser):
        pass

    Unseen.reasoning_parser_cls = InklingReasoningParser if reasoning else None
    Unseen.tool_parser_cls = InklingToolParser if tool else None
    assert Unseen.parse_delta is DelegatingParser.parse_delta
    return Unseen


@pytest.mark.parametrize(
    ("reasoning", "tool", "choice", "expected"),
    [
        (True, True, "auto", ("p", "c" + CALL, [])),
        (True, True, "none", ("p", "c" + CALL, [])),
        (True, False, "none", ("p", "c" + CALL, [])),
        (False, True, "auto", ("", "c", [["f", '{"a":1}']])),
        (False, True, "none", ("", "c", [])),
    ],
)
def test_each_parser_answers_by_itself(serve, tokenizer, encode, reasoning, tool, choice, expected):
    server = serve()
    server.parser_cls = composed_unseen(reasoning, tool)
    request = server.request(tools=[TOOL], tool_choice=choice, skip_special_tokens=False)
    ids = encode(tokenizer, SEGMENTS)
    assert server.stream(request, [[token] for token in ids]).plain() == expected
    assert server.stream(request, [ids]).plain() == expected
    assert server.whole(request, [ids]).plain() == expected


def test_the_reasoning_parser_starts_in_the_prompts_block(serve, tokenizer, encode):
    opened = [("s", "<|message_model|>"), ("s", "<|content_thinking|>")]
    server = serve(prompt=opened)
    server.parser_cls = composed_unseen(True, False)
    ids = encode(tokenizer, [("t", "far"), ("s", "<|end_message|>")])
    assert server.stream(server.request(), [ids]).plain() == ("far", "", [])
