"""OpenAI dictionaries from events: a stream's deltas add up to the whole message."""

from __future__ import annotations

import itertools
import json
import pkgutil
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from inkling_parsers.adapters.openai import ChatDeltas, ChunkFrame, chat_message, finish_reason
from inkling_parsers.events import Termination
from inkling_parsers.parser import StreamParser

# A machine that is busy elsewhere is no fault of the code under test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ANSWER = (
    "<|content_thinking|>let me see<|end_message|><|message_model|><|content_text|>It is <|end"
    "<|end_message|><|message_model|>f<|content_invoke_tool_json|>"
    '{"name":"f","args":{"n":"5"}}<|end_message|><|message_model|>g<|content_invoke_tool_json|>'
    '{"name":"g","args":{}}<|end_message|><|content_model_end_sampling|>'
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
]


def deltas_of(pieces: list[str], **options: Any) -> tuple[list[dict[str, Any]], str]:
    parser, deltas = StreamParser(), ChatDeltas(**options)
    sent = [deltas.feed(parser.feed(piece)) for piece in pieces]
    sent.append(deltas.finish(parser.finish()))
    return [delta for delta in sent if delta is not None], deltas.finish_reason(parser.termination)


def joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """What an OpenAI client makes of the deltas."""
    message: dict[str, Any] = {"role": None, "content": None}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for key, value in delta.items():
            if key == "role":
                assert message["role"] is None, "the role is said once"
                message["role"] = value
            elif key == "tool_calls":
                for entry in value:
                    _join_call(calls, entry)
            else:
                message[key] = (message.get(key) or "") + value
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return message


def _join_call(calls: dict[int, dict[str, Any]], entry: dict[str, Any]) -> None:
    if entry["index"] not in calls:
        assert entry["id"] and entry["type"] == "function" and entry["function"]["name"]
        calls[entry["index"]] = {
            "id": entry["id"], "type": "function", "function": dict(entry["function"])
        }  # fmt: skip
    else:
        assert "id" not in entry, "a call's id is sent once"
        calls[entry["index"]]["function"]["arguments"] += entry["function"]["arguments"]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    copy = json.loads(json.dumps(message))
    ids = [call.pop("id") for call in copy.get("tool_calls", ())]
    assert len(set(ids)) == len(ids)
    return copy


@UNHURRIED
@given(
    st.lists(st.integers(0, len(ANSWER)), max_size=12),
    st.sampled_from([None, TOOLS]),
    st.integers(0, len(ANSWER)),
)
def test_a_stream_adds_up_to_the_whole_message(cuts: list[int], coerce_to: Any, end: int):
    """Under every split, for every truncated answer, with coercion and without."""
    answer = ANSWER[:end]
    edges = [0, *sorted(min(cut, end) for cut in cuts), end]
    pieces = [answer[a:b] for a, b in itertools.pairwise(edges)]
    deltas, _ = deltas_of(pieces, coerce_to=coerce_to)
    parser = StreamParser()
    whole = chat_message([*parser.feed(answer), *parser.finish()], coerce_to=coerce_to)
    streamed = joined(deltas)
    streamed["role"] = "assistant"  # an empty answer has no delta to say it
    assert without_ids(streamed) == without_ids(whole)


def test_the_whole_message_has_openais_form():
    parser = StreamParser()
    message = chat_message([*parser.feed(ANSWER), *parser.finish()], reasoning_field="reasoning")
    first, second = message["tool_calls"]
    assert first["id"].startswith("call_") and first["id"] != second["id"]
    assert without_ids(message) == {
        "role": "assistant",
        "content": "It is <|end",
        "reasoning": "let me see",
        "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": '{"n":"5"}'}},
            {"type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_coercion_is_asked_for():
    deltas, _ = deltas_of(list(ANSWER), coerce_to=TOOLS)
    assert joined(deltas)["tool_calls"][0]["function"]["arguments"] == '{"n": 5}'


def test_thoughts_can_be_left_out():
    deltas, _ = deltas_of(list(ANSWER), reasoning_field=None)
    assert "let me see" not in json.dumps(deltas)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ANSWER, "tool_calls"),
        ("<|content_text|>hi<|end_message|><|content_model_end_sampling|>", "stop"),
        ("<|content_text|>hi<|end_message|>", "length"),
        ("<|content_text|>hi", "length"),
        (ANSWER[: ANSWER.index('"5"')], "length"),
    ],
)
def test_the_finish_reason_follows_the_end_of_the_answer(answer: str, reason: str):
    assert deltas_of([answer])[1] == reason


def test_a_malformed_call_is_no_tool_call():
    assert finish_reason(Termination.MALFORMED, has_calls=False) == "stop"


def test_a_chunk_has_openais_form():
    frame = ChunkFrame("chatcmpl-1", "inkling", 1)
    assert frame.chunk({"content": "hi"}) == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "inkling",
        "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}],
    }
    assert frame.chunk(None, "stop")["choices"][0] == {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
    }


def test_importing_the_package_loads_no_adapter():
    code = (
        "import sys, inkling_parsers; print([m for m in sys.modules if '.adapters' in m or "
        "m.startswith(('openai', 'vllm'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_vllm_adapter_needs_a_package():
    """Every other module of `adapters` imports without third parties."""
    import inkling_parsers.adapters as adapters

    names = [found.name for found in pkgutil.iter_modules(adapters.__path__)]
    imports = "; ".join(f"import inkling_parsers.adapters.{name}" for name in names)
    code = f"import sys; sys.modules['vllm'] = None; {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "vllm" in names and "openai" in names
