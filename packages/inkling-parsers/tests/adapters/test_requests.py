"""What the parsers do to requests: markers stay in the text, forced tool choice has a grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
            },
        },
    }
    for name in ("book", "cancel")
]
NAMED = {"type": "function", "function": {"name": "cancel"}}
CONFIGURATIONS = [
    pytest.param("inkling_py", "inkling_py", id="reasoning-tools"),
    pytest.param(None, "inkling_py", id="tools"),
]


def grammar_of(request: Any) -> dict[str, Any] | None:
    outputs = request.structured_outputs
    if outputs is None or outputs.structural_tag is None:
        return None
    return json.loads(outputs.structural_tag)


@pytest.mark.parametrize("wish", [True, False, None], ids=["true", "false", "unset"])
@pytest.mark.parametrize(
    ("reasoner", "tool"),
    [*CONFIGURATIONS, pytest.param("inkling_py", None, id="reasoning")],
)
def test_special_tokens_stay_in_the_text_whatever_the_request_says(serve, reasoner, tool, wish):
    fields = {} if wish is None else {"skip_special_tokens": wish}
    if tool:
        fields["tools"] = TOOLS
    assert serve(reasoner, tool).request(**fields).skip_special_tokens is False


@pytest.mark.parametrize(("reasoner", "tool"), CONFIGURATIONS)
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_choice_has_a_grammar_from_the_first_token(serve, reasoner, tool, choice):
    request = serve(reasoner, tool).request(tools=TOOLS, tool_choice=choice)
    grammar = grammar_of(request)
    assert grammar is not None and grammar["type"] == "structural_tag"
    spelled = json.dumps(grammar)
    assert "cancel" in spelled
    assert ("book" in spelled) == (choice == "required")
    flags = [getattr(request, name, False) for name in _FROM_START]
    assert any(flags), "vLLM would wait for the reasoning to end before it applies the grammar"


_FROM_START = ("_grammar_from_parser", "_grammar_from_tool_parser")


@pytest.mark.parametrize(("reasoner", "tool"), CONFIGURATIONS)
def test_the_grammar_admits_the_call_and_nothing_else(serve, tokenizer, encode, reasoner, tool):
    """Compiled by the xgrammar that vLLM uses, over the server's vocabulary, token by token."""
    import xgrammar

    request = serve(reasoner, tool).request(tools=TOOLS, tool_choice=NAMED)
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
    compiler = xgrammar.GrammarCompiler(info)
    compiled = compiler.compile_structural_tag(json.dumps(grammar_of(request)))

    def accepts(segments: Any) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(token) for token in encode(tokenizer, segments))

    thinking = [("s", "<|content_thinking|>"), ("t", "hm"), ("s", "<|end_message|>")]
    opener = [("t", "cancel"), ("s", "<|content_invoke_tool_json|>")]
    good = [*opener, ("t", '{"name":"cancel","args":{"n": 3}}'), ("s", "<|end_message|>")]
    other = [("t", "book"), ("s", "<|content_invoke_tool_json|>")]
    assert accepts(good)
    assert accepts([*thinking, ("s", "<|message_model|>"), *good])
    assert not accepts(other)
    assert not accepts([("s", "<|content_text|>")])
    assert not accepts([("s", "<|message_model|>"), *good]), "the prompt holds the role already"


@pytest.mark.parametrize(("reasoner", "tool"), CONFIGURATIONS)
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_free_choice_has_none(serve, reasoner, tool, choice):
    request = serve(reasoner, tool).request(tools=TOOLS, tool_choice=choice)
    assert grammar_of(request) is None


def test_a_strict_tool_is_held_under_a_free_choice(serve):
    strict = {"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}
    request = serve().request(tools=[strict], tool_choice="auto")
    grammar = grammar_of(request)
    assert grammar is not None and '"n"' in json.dumps(grammar)


def test_the_servers_strict_level_holds_arguments(serve, vllm_version):
    if vllm_version.startswith(("0.26", "0.30")):
        pytest.skip("--tool-strict-level came with vLLM 0.32")
    from vllm.tool_parsers.tool_strict_level import ToolStrictLevel

    server = serve()
    server.parser_cls.tool_strict_level = ToolStrictLevel.PARAMETER
    held = grammar_of(server.request(tools=TOOLS, tool_choice="auto"))
    assert held is not None and '"integer"' in json.dumps(held)
    server.parser_cls.tool_strict_level = ToolStrictLevel.FUNCTION
    free = grammar_of(server.request(tools=TOOLS, tool_choice="auto"))
    assert free is not None and '"integer"' not in json.dumps(free)


def test_enforcement_can_be_switched_off_as_for_vllms_own_parsers(serve, monkeypatch):
    monkeypatch.setenv("VLLM_ENFORCE_STRICT_TOOL_CALLING", "0")
    request = serve().request(tools=TOOLS, tool_choice="required")
    assert grammar_of(request) is None
    assert not any(getattr(request, name, False) for name in _FROM_START)


def test_the_responses_api_is_held_where_vllm_can(serve, vllm_version):
    """With a reasoning parser only 0.33 starts a grammar before the reasoning ends there."""
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    fields = {"tools": tools, "tool_choice": "required"}
    alone = serve(None, "inkling_py").responses_request(**fields)
    assert grammar_of(alone) is not None
    both = serve().responses_request(**fields)
    assert (grammar_of(both) is not None) == vllm_version.startswith("0.33")
    assert both.skip_special_tokens is False


def test_reasoning_ends_where_an_answer_block_opens(serve, tokenizer, encode):
    """The gate for JSON grammars: they start behind <|content_text|>, not before."""
    parser = serve().parser_cls(tokenizer).reasoning_parser

    def ends(*names: str) -> bool:
        ids = encode(tokenizer, [("s", name) for name in names])
        return parser.is_reasoning_end(ids)

    model, thinking = "<|message_model|>", "<|content_thinking|>"
    assert not ends(model)
    assert not ends(model, thinking)
    assert not ends(model, thinking, "<|end_message|>")
    assert not ends("<|content_text|>", "<|end_message|>", model)
    assert ends(model, thinking, "<|end_message|>", model, "<|content_text|>")
    assert ends(model, "<|content_invoke_tool_json|>")
    text, open_ = encode(tokenizer, [("s", "<|content_text|>"), ("s", thinking)])
    assert parser.is_reasoning_end_streaming([], [text])
    assert not parser.is_reasoning_end_streaming([text], [open_])


def test_reasoning_tokens_are_counted_inside_thinking_blocks(serve, tokenizer, encode):
    parser = serve().parser_cls(tokenizer)
    hidden = [("s", "<|content_thinking|>"), ("t", "let me"), ("s", "<|end_message|>")]
    thought = len(encode(tokenizer, [("t", "let me")]))
    shown = [("s", "<|content_text|>"), ("t", "hello"), ("s", "<|end_message|>")]
    assert (
        parser.reasoning_parser.count_reasoning_tokens(
            encode(tokenizer, [*hidden, ("s", "<|message_model|>"), *shown, *hidden])
        )
        == 2 * thought
    )
    content = parser.reasoning_parser.extract_content_ids(encode(tokenizer, [*hidden, *shown]))
    assert content == encode(tokenizer, shown)
