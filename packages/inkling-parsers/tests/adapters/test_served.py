"""What a client gets from vLLM with these parsers, in every configuration.

{reasoning parser on, off} x {tool parser on, off} x {tools declared or not} x {stream or not}: no
special token becomes output, a stream says what the whole answer says, nothing is lost.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

CALL = '{"name":"get_weather","args":{"city":"Oslo"}}'
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
S, T = "s", "t"
MODEL, TEXT, THINK = "<|message_model|>", "<|content_text|>", "<|content_thinking|>"
INVOKE, END, STOP = (
    "<|content_invoke_tool_json|>",
    "<|end_message|>",
    "<|content_model_end_sampling|>",
)
WEATHER = ["get_weather", '{"city":"Oslo"}']


def block(kind: str, text: str, header: str = "") -> list[tuple[str, str]]:
    """One closed block, its header where it has one."""
    return [*([(T, header)] if header else []), (S, kind), (T, text), (S, END)]


# name -> (segments, reasoning, content, calls), as the joint parser shall give them
TRANSCRIPTS: dict[str, Any] = {
    "text": ([*block(TEXT, "The answer is 4."), (S, STOP)], "", "The answer is 4.", []),
    "bare": ([(T, "Hello there"), (S, END), (S, STOP)], "", "Hello there", []),
    "think-text": (
        [*block(THINK, "let me\n\n"), (S, MODEL), *block(TEXT, " ok ")],
        "let me\n\n",
        " ok ",
        [],
    ),
    "call-first": ([*block(INVOKE, CALL, "get_weather"), (S, STOP)], "", "", [WEATHER]),
    "all-kinds": (
        [
            *block(THINK, "p"),
            (S, MODEL),
            *block(TEXT, "c"),
            (S, MODEL),
            *block(INVOKE, CALL, "get_weather"),
            (S, MODEL),
            *block(INVOKE, CALL),
            (S, MODEL),
            *block(TEXT, " after"),
            (S, STOP),
        ],
        "p",
        "c after",
        [WEATHER, WEATHER],
    ),
    "look-alikes": (
        [
            *block(THINK, f"say {END}{MODEL}{INVOKE} or <|end_"),
            (S, MODEL),
            *block(TEXT, f"{STOP} and {TEXT}<"),
            (S, STOP),
        ],
        f"say {END}{MODEL}{INVOKE} or <|end_",
        f"{STOP} and {TEXT}<",
        [],
    ),
    "look-alike-in-argument": (
        block(INVOKE, f'{{"name":"get_weather","args":{{"city":"{END}"}}}}'),
        "",
        "",
        [["get_weather", f'{{"city":"{END}"}}']],
    ),
    "unclosed-thinking": (
        [(S, THINK), (T, "hm"), *block(INVOKE, CALL), (S, STOP)],
        "hm",
        "",
        [WEATHER],
    ),
    "unknown-specials": (
        [(S, TEXT), (T, "a"), (S, "<|unused_200033|>"), (S, "</s>"), (T, "b"), (S, END)],
        "",
        "ab",
        [],
    ),
    "cut-characters": (
        [*block(THINK, "gr\u00fcn \U0001f44d\U0001f3fd"), (S, MODEL), *block(TEXT, "zw\u00f6lf")],
        "gr\u00fcn \U0001f44d\U0001f3fd",
        "zw\u00f6lf",
        [],
    ),
    "truncated-call": (
        [(T, "get_weather"), (S, INVOKE), (T, '{"name":"get_weather","args":{"city":"Os')],
        "",
        "",
        [["get_weather", '{"city":"Os']],
    ),
    "empty": ([], "", "", []),
}
NAMES = {
    MODEL, TEXT, THINK, INVOKE, END, STOP, "<|content_invoke_tool_text|>", "<|content_tool_error|>",
    "<|message_user|>", "<|message_system|>", "<|message_tool|>", "<|unused_200033|>", "</s>",
}  # fmt: skip

CONFIGURATIONS = [
    pytest.param("inkling_py", "inkling_py", id="reasoning-tools"),
    pytest.param("inkling_py", None, id="reasoning"),
    pytest.param(None, "inkling_py", id="tools"),
]
DECLARED = [pytest.param([TOOL], id="declared"), pytest.param(None, id="undeclared")]
ROWS = [pytest.param(*row, id=name) for name, row in TRANSCRIPTS.items()]


def steps_of(ids: list[int]) -> dict[str, list[list[int]]]:
    """The same ids in different engine steps; an empty last step as after a late finish."""
    chance = random.Random(len(ids))
    cuts = sorted(chance.sample(range(1, max(len(ids), 2)), min(3, max(len(ids) - 1, 1))))
    edges = [0, *cuts, len(ids)]
    return {
        "one": [ids],
        "tokens": [[token] for token in ids] or [[]],
        "pairs": [ids[at : at + 2] for at in range(0, len(ids), 2)] + [[]],
        "random": [ids[a:b] for a, b in itertools.pairwise(edges)],
    }


def request_fields(tools: list[Any] | None, tool: str | None) -> dict[str, Any]:
    """As the server would take it: `auto` needs a tool parser, tools without one need `none`."""
    if tools is None:
        return {}
    return {"tools": tools, "tool_choice": "auto" if tool else "none"}


@pytest.mark.parametrize(("segments", "reasoning", "content", "calls"), ROWS)
@pytest.mark.parametrize("tools", DECLARED)
@pytest.mark.parametrize(("reasoner", "tool"), CONFIGURATIONS)
def test_no_marker_leaks_and_a_stream_is_the_whole(
    serve, encoded, reasoner, tool, tools, segments, reasoning, content, calls
):
    server = serve(reasoner, tool)
    request = server.request(**request_fields(tools, tool))
    ids = encoded(segments)
    whole = server.whole(request, [ids])
    for split, steps in steps_of(ids).items():
        assert server.stream(request, steps).plain() == whole.plain(), split

    assert whole.reasoning == reasoning, "thoughts have their own field whatever is configured"
    if tool and tools:
        assert (whole.content, whole.calls) == (content, calls)
    elif tool:
        assert (whole.content, whole.calls) == (content, []), "tool_choice none drops calls"
    else:
        assert whole.calls == []
        assert payloads(segments) in whole.content, "a call is shown, not lost"
    typed = "".join(text for kind, text in segments if kind == T)
    for name in NAMES:
        said = whole.reasoning + whole.content + str(whole.calls)
        assert name not in said or name in typed, f"{name} leaked"


def payloads(segments: Any) -> str:
    """The payload of the last call among `segments`."""
    found = ""
    for (_, marker), (_, text) in itertools.pairwise(segments):
        if marker == INVOKE:
            found = text
    return found


@pytest.fixture
def encoded(tokenizer, encode):
    return lambda segments: encode(tokenizer, segments)


@pytest.mark.parametrize("tool", ["inkling_py", None])
@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_that_opens_thinking_goes_on_thinking(serve, encoded, vllm_version, stream, tool):
    if not stream and vllm_version.startswith(("0.26", "0.30")):
        pytest.skip("before 0.32 vLLM tells no parser which prompt a whole answer belongs to")
    server = serve("inkling_py", tool, prompt=((S, MODEL), (S, THINK), (T, "so ")))
    ids = encoded([(T, "far"), (S, END), (S, MODEL), (S, TEXT), (T, "ok"), (S, END), (S, STOP)])
    run = server.stream if stream else server.whole
    assert run(server.request(), [ids[:1], ids[1:]]).plain() == ("far", "ok", [])


def test_a_prompt_that_opens_text_goes_on_with_text(serve, encoded):
    server = serve(prompt=((S, MODEL), (S, TEXT)))
    ids = encoded([(T, "far"), (S, END), (S, STOP)])
    assert server.stream(server.request(), [ids]).plain() == ("", "far", [])


def test_hidden_reasoning_is_left_out(serve, encoded):
    server = serve()
    segments, _, content, _ = TRANSCRIPTS["think-text"]
    request = server.request(include_reasoning=False)
    assert server.stream(request, [encoded(segments)]).plain() == ("", content, [])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stop_string_holds_text_back_but_not_the_markers(serve, encoded, size):
    """The detokenizer sends text late, ids at once; look-alikes are in the text that is held."""
    server = serve()
    segments, reasoning, content, _ = TRANSCRIPTS["look-alikes"]
    ids = encoded(segments)
    steps = [ids[at : at + size] for at in range(0, len(ids), size)]
    answer = server.stream(server.request(), steps, stop=["never said, and quite long"])
    assert answer.plain() == (reasoning, content, [])


def test_a_stop_string_ends_the_answer_where_it_starts(serve, encoded):
    server = serve()
    ids = encoded([(S, TEXT), (T, "one two three"), (S, END), (S, STOP)])
    steps = [ids[at : at + 2] for at in range(0, len(ids), 2)]
    for run in (server.stream, server.whole):
        assert run(server.request(), steps, stop=["two"]).plain() == ("", "one ", [])


@pytest.mark.parametrize(("reasoner", "tool"), CONFIGURATIONS)
def test_a_request_that_hides_special_tokens_is_still_taken_apart(serve, encoded, reasoner, tool):
    """As it arrives where nothing prepares it: the text has no markers, the ids have."""
    server = serve(reasoner, tool)
    segments, reasoning, content, _ = TRANSCRIPTS["think-text"]
    request = server.request(adjust=False, skip_special_tokens=True)
    for steps in steps_of(encoded(segments)).values():
        assert server.stream(request, steps).plain() == (reasoning, content, [])
        assert server.whole(request, steps).plain() == (reasoning, content, [])


def test_a_call_is_announced_before_it_is_complete(serve, encoded):
    """The name goes out with its first argument, not at the end."""
    server = serve()
    request = server.request(tools=[TOOL])
    segments = [(T, "get_weather"), (S, INVOKE), (T, CALL), (S, END), (S, STOP)]
    steps = [[token] for token in encoded(segments)]
    assert server.stream(request, steps).deltas > 5


def test_coercion_is_off_unless_the_server_turns_it_on(serve, encoded, monkeypatch):
    tool = {"type": "function", "function": {"name": "book", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}}}}}  # fmt: skip
    server = serve()
    request = server.request(tools=[tool])
    ids = encoded([(S, INVOKE), (T, '{"name":"book","args":{"n":"5"}}'), (S, END), (S, STOP)])
    steps = [[token] for token in ids]
    assert server.stream(request, steps).calls == [["book", '{"n":"5"}']]
    monkeypatch.setenv("INKLING_PARSERS_COERCE", "on")
    assert server.stream(request, steps).calls == [["book", '{"n": 5}']]
    assert server.whole(request, steps).calls == [["book", '{"n": 5}']]
    monkeypatch.setenv("INKLING_PARSERS_COERCE", "perhaps")
    with pytest.raises(ValueError, match="either 'on' or 'off'"):
        server.whole(request, steps)


def test_vllms_counter_of_tool_parser_calls_goes_on(serve, encoded):
    import prometheus_client
    from vllm.parser.metrics import init_parser_metrics

    init_parser_metrics(model_name="tiny")

    def counted(mode: str, outcome: str) -> float:
        labels = {"model_name": "tiny", "mode": mode, "outcome": outcome}
        labels["request_type"] = "chat_completions"
        name = "vllm:tool_call_parser_invocations_total"
        return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0

    server = serve()
    request = server.request(tools=[TOOL])
    ids = encoded(TRANSCRIPTS["call-first"][0])
    before = counted("streaming", "tool_call"), counted("non_streaming", "tool_call")
    server.stream(request, [ids])
    server.whole(request, [ids])
    after = counted("streaming", "tool_call"), counted("non_streaming", "tool_call")
    assert after == (before[0] + 1, before[1] + 1)
