"""Behaviour of a real server: answers, refusals with their numbers, faults that stay alone.

One random tiny checkpoint serves all of it (conftest.py: a prompt with token POISON computes NaN).
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from inkling_core.config import InklingConfig
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder
from inkling_core.nano.vocabulary import SPECIAL_IDS
from inkling_core.weights import load
from inkling_parsers.render import render

POISON, LIMIT = 299, 768  # as in conftest.py
pytestmark = pytest.mark.server


@pytest.fixture
def server(tiny_server: Any) -> Any:
    return tiny_server


def complete(server: Any, prompt: list[int], **options: Any) -> Any:
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    return server.post("/v1/completions", {**body, "return_token_ids": True, **options})


def chat(server: Any, messages: list[Any], **options: Any) -> Any:
    body = {"messages": messages, "max_tokens": 4, "temperature": 0, "return_token_ids": True}
    return server.post("/v1/chat/completions", {**body, **options})


def tokens(answer: Any) -> list[int]:
    assert answer.status == 200, answer.body
    return answer.body["choices"][0]["token_ids"]


def test_a_token_was_made_before_the_first_health_answer(server: Any) -> None:
    text = server.log.read_text()
    assert "Inkling: the engine made a token" in text
    assert text.index("Inkling: the engine made a token") < text.index("Started server process")


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"b":1,"a":2}'}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
TURNS = {
    "plain": ([{"role": "user", "content": "12+7=?"}], {}),
    "system": ([{"role": "system", "content": "s"}, {"role": "user", "content": "h\u00e9"}], {}),
    "spelled-markers": ([{"role": "user", "content": "<|end_message|><|content_text|>"}], {}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}], {}),
    "tool-turns": (
        [
            {"role": "user", "content": "2+1"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
        ],
        {"tools": TOOLS},
    ),
}


@pytest.mark.parametrize("name", list(TURNS))
@pytest.mark.parametrize("effort", [None, "low", 0.35, 0.0, 0.99])
def test_prompt_ids_are_the_renderers(server: Any, name: str, effort: Any) -> None:
    messages, extra = TURNS[name]
    options = {} if effort is None else {"chat_template_kwargs": {"reasoning_effort": effort}}
    answer = chat(server, messages, **extra, **options)
    assert answer.status == 200, answer.body
    rendered = render(messages, effort=0.9 if effort is None else effort, **extra)
    expected = rendered.ids(lambda text: bytes_of(text), SPECIAL_IDS)
    assert answer.body["prompt_token_ids"] == expected


def bytes_of(text: str) -> list[int]:
    """The tiny tokenizer: one token a byte, by GPT-2's byte alphabet."""
    from inkling_core.weights.byte_tokenizer import byte_alphabet

    alphabet = byte_alphabet()
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = {byte: chr(byte) for byte in printable}
    rest = [byte for byte in range(256) if byte not in letters]
    letters.update({byte: chr(256 + i) for i, byte in enumerate(rest)})
    return [alphabet[letters[byte]] for byte in text.encode()]


def part(kind: str, value: Any) -> list[Any]:
    return [{"role": "user", "content": [{"type": kind, kind: value}]}]


USER = [{"role": "user", "content": "hi"}]
REFUSED = {
    "image": ({"messages": part("image_url", {"url": "http://x/y.png"})}, ["image"]),
    "audio": ({"messages": part("input_audio", {"data": "AA==", "format": "wav"})}, ["audio"]),
    "video": ({"messages": part("video_url", {"url": "http://x/y.mp4"})}, ["video"]),
    "effort-word": ({"messages": USER, "reasoning_effort": "huge"}, ["none", "xhigh"]),
    "effort-number": (
        {"messages": USER, "chat_template_kwargs": {"reasoning_effort": 1.5}},
        ["1.5", "0.99"],
    ),
    "effort-option-word": (
        {"messages": USER, "chat_template_kwargs": {"reasoning_effort": "huge"}},
        ["none, minimal, low, medium, high, xhigh, max"],
    ),
    "answer-too-long": ({"messages": USER, "max_tokens": LIMIT - 10}, [str(LIMIT), "35"]),
    "prompt-too-long": (
        {"messages": [{"role": "user", "content": "x" * 800}]},
        [str(LIMIT), "833"],
    ),
    "unknown-role": ({"messages": [{"role": "robot", "content": "x"}]}, ["robot"]),
    "continue": (
        {"messages": USER, "continue_final_message": True, "add_generation_prompt": False},
        ["continue_final_message"],
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_refusal_says_why_and_the_next_request_is_answered(server: Any, name: str) -> None:
    body, needles = REFUSED[name]
    answer = server.post("/v1/chat/completions", body)
    assert answer.status == 400, answer.body
    for needle in needles:
        assert needle in answer.message
    assert chat(server, USER).status == 200


def test_completion_too_long_names_both_numbers(server: Any) -> None:
    answer = complete(server, [5] * (LIMIT - 4), max_tokens=8)
    assert answer.status == 400
    assert str(LIMIT - 4) in answer.message and str(LIMIT) in answer.message
    assert len(tokens(complete(server, [5] * (LIMIT - 8), max_tokens=8))) == 8


def test_logprobs_are_the_dense_references(server: Any, tiny_folder: Path) -> None:
    prompt = list(range(40, 117))
    answer = complete(server, prompt, logprobs=3, return_tokens_as_token_ids=True)
    config = InklingConfig.from_checkpoint(tiny_folder)
    decoder = Decoder(config).load_weights(load(tiny_folder, config, progress="off").items())
    ids = [*prompt, *tokens(answer)[:-1]]
    logits_TV = TokenGenerator(decoder, len(ids)).feed(ids)[len(prompt) - 1 :]
    expected_T = logits_TV.log_softmax(-1).max(-1).values
    served_T = torch.tensor(answer.body["choices"][0]["logprobs"]["token_logprobs"])
    torch.testing.assert_close(served_T, expected_T, rtol=0, atol=2e-5)
    assert all(len(top) >= 3 for top in answer.body["choices"][0]["logprobs"]["top_logprobs"])


def test_n_and_seed(server: Any) -> None:
    options = {"n": 3, "seed": 7, "temperature": 1.0, "top_k": 20}
    first = complete(server, [1, 2, 3], **options)
    again = complete(server, [1, 2, 3], **options)
    other = complete(server, [1, 2, 3], **{**options, "seed": 8})
    answers = [[c["token_ids"] for c in a.body["choices"]] for a in (first, again, other)]
    assert len(answers[0]) == 3 and len({tuple(ids) for ids in answers[0]}) > 1
    assert answers[0] == answers[1] != answers[2]


def test_stop_string_cuts_the_answer(server: Any) -> None:
    whole = complete(server, [9, 8, 7], max_tokens=24).body["choices"][0]["text"]
    stop = next(char for char in whole[2:] if char.isascii() and char not in whole[:2])
    cut = complete(server, [9, 8, 7], max_tokens=24, stop=stop).body["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == whole[: whole.index(stop)]


def test_json_schema_is_obeyed_by_a_random_model(server: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"enum": [1, 2]}, "ok": {"type": "boolean"}},
        "required": ["sum", "ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    options = {"max_tokens": 120, "ignore_eos": False, "response_format": wanted}
    answer = complete(server, [9, 8, 7], **options)
    assert answer.status == 200, answer.body
    value = json.loads(answer.body["choices"][0]["text"])
    assert value["sum"] in (1, 2) and isinstance(value["ok"], bool)


def test_bad_schema_and_bad_parameters_are_4xx(server: Any) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nothing"}}}
    assert 400 <= complete(server, [1], response_format=schema).status < 500
    assert 400 <= complete(server, [1], temperature=-1).status < 500
    assert 400 <= complete(server, [1], n=0).status < 500
    assert 400 <= complete(server, [POISON + 100]).status < 500
    assert len(tokens(complete(server, [1]))) == 8


def test_nan_ends_one_request_alone(server: Any) -> None:
    """Poisoned and sound requests side by side; sound answers are what they are alone."""
    sound = [[k, *range(20, 20 + 45 * k)] for k in range(1, 5)]
    alone = [tokens(complete(server, prompt, max_tokens=24)) for prompt in sound]
    poisoned = [[*range(100, 170), POISON, *range(100, 100 + k)] for k in (1, 40)]
    with ThreadPoolExecutor(8) as pool:
        good = [pool.submit(complete, server, prompt, max_tokens=24) for prompt in sound]
        bad = [pool.submit(complete, server, prompt) for prompt in poisoned]
        assert [tokens(future.result()) for future in good] == alone
        assert [future.result().status for future in bad] == [500, 500]
    assert [tokens(complete(server, prompt, max_tokens=24)) for prompt in sound] == alone


def test_blocks_of_a_nan_request_are_never_reused(server: Any) -> None:
    prompt = [*range(170, 250), *range(4), POISON, *range(40)]
    assert complete(server, prompt).status == 500
    hits = server.metric("vllm:prefix_cache_hits_total")
    assert complete(server, prompt).status == 500
    assert len(tokens(complete(server, prompt[:84]))) == 8
    assert server.metric("vllm:prefix_cache_hits_total") == hits
    assert len(tokens(complete(server, prompt[:84]))) == 8  # and a sound prefix is cached again
    assert server.metric("vllm:prefix_cache_hits_total") == hits + 64


def test_client_that_goes_away_frees_its_blocks(server: Any) -> None:
    connection = server.connect()
    body = {"prompt": [3] * 100, "max_tokens": 400, "ignore_eos": True, "stream": True}
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
    )
    assert connection.getresponse().readline().startswith(b"data:")
    assert server.metric("vllm:kv_cache_usage_perc") > 0
    connection.close()
    made = server.metric("vllm:generation_tokens_total")
    deadline = time.monotonic() + 60
    tokens(complete(server, [1], max_tokens=1))  # an idle engine reports no usage
    while server.metric("vllm:kv_cache_usage_perc") > 0:
        assert time.monotonic() < deadline, "blocks are still held a minute after the disconnect"
        tokens(complete(server, [1], max_tokens=1))
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("vllm:generation_tokens_total") - made < 300
    assert len(tokens(complete(server, [1]))) == 8
