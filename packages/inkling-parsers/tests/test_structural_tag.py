"""The grammar of a forced tool choice as data: what is demanded, what is refused.

Whether a grammar library compiles it, and what can be sampled under it, is in
test_structural_tag_walks.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from inkling_parsers.markers import Marker, SpecialTokens
from inkling_parsers.render_errors import RenderError
from inkling_parsers.structural_tag import structural_tag

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "now"}},
]
NAMED = {"type": "function", "function": {"name": "now"}}


def tag(choice: Any, tools: Any = TOOLS, **options: Any) -> Any:
    options = {"reasoning": False, "strict": True, **options}
    return structural_tag(tools, choice, **options)


def schemas(node: Any) -> list[Any]:
    """All argument schemas in a tag."""
    if isinstance(node, list):
        return [schema for item in node for schema in schemas(item)]
    if not isinstance(node, dict):
        return []
    if node.get("type") == "json_schema":
        return [node["json_schema"]]
    return [schema for value in node.values() for schema in schemas(value)]


def first_tokens(node: Any) -> set[str]:
    """The markers and constants that an answer may begin with."""
    kind = node["type"]
    if kind == "token":
        return {node["token"]}
    if kind == "const_string":
        return {node["value"]}
    if kind == "or":
        return set().union(*(first_tokens(element) for element in node["elements"]))
    assert kind == "sequence"
    return first_tokens(node["elements"][0])


@pytest.mark.parametrize("choice", [None, "none"])
def test_nothing_to_enforce(choice: Any) -> None:
    assert tag(choice) is None
    assert tag("auto", []) is None
    assert tag("auto", None) is None


@pytest.mark.parametrize(
    ("choice", "reasoning", "expected"),
    [
        pytest.param(NAMED, False, {"now"}, id="named"),
        pytest.param(NAMED, True, {"now", "<|content_thinking|>"}, id="named-thinking"),
        pytest.param({"type": "function", "name": "now"}, False, {"now"}, id="named-flat"),
        pytest.param("required", False, {"now", "get_weather"}, id="required"),
        pytest.param(
            "required", True, {"now", "get_weather", "<|content_thinking|>"}, id="required-thinking"
        ),
        pytest.param(
            "auto",
            False,
            {"now", "get_weather", "<|content_thinking|>", "<|content_text|>"},
            id="auto",
        ),
        pytest.param(
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [NAMED]},
            },
            False,
            {"now"},
            id="allowed",
        ),
    ],
)
def test_an_answer_begins_without_the_role_marker_of_the_prompt(
    choice: Any, reasoning: bool, expected: set[str]
) -> None:
    assert first_tokens(tag(choice, reasoning=reasoning)["format"]) == expected
    late = tag(choice, reasoning=reasoning, role_open=False)
    assert first_tokens(late["format"]) == {"<|message_model|>"}


@pytest.mark.parametrize("choice", [NAMED, "required", "auto"])
def test_markers_are_the_tokens_of_the_vocabulary(choice: Any) -> None:
    vocabulary = {marker.value: 500 + i for i, marker in enumerate(Marker)}
    tokens = SpecialTokens.from_vocab(vocabulary)
    by_name = json.dumps(tag(choice))
    by_id = json.dumps(tag(choice, tokens=tokens))
    assert f'{{"type": "token", "token": {vocabulary["<|end_message|>"]}}}' in by_id
    assert '{"type": "token", "token": "<|end_message|>"}' in by_name
    if choice == "auto":
        everything = json.dumps(sorted(vocabulary.values()))
        assert f'"exclude_tokens": {everything}' in by_id  # no special token is text
    assert "<|message_user|>" not in by_name  # which a vocabulary need not have
    assert by_id.count('"excludes": ["<|"]') == by_id.count('"json_schema": {') > 0


def test_several_calls_only_where_they_were_asked_for() -> None:
    assert "star" in json.dumps(tag("required"))
    assert "star" not in json.dumps(tag("required", parallel=False))
    assert "star" not in json.dumps(tag(NAMED))


def test_a_tool_that_says_strict_is_held_to_its_schema() -> None:
    tools = json.loads(json.dumps(TOOLS))
    assert schemas(tag("required", tools, strict=False)) == [{"type": "object"}] * 4
    tools[0]["function"]["strict"] = True
    loose = schemas(tag("required", tools, strict=False, parallel=False))
    assert loose == [CITY, {"type": "object"}]


def test_schema_keys_are_sorted_as_in_the_prompt() -> None:
    parameters = {"properties": {"b": {"properties": {"z": {}, "a": {}}}, "a": {}}}
    (schema,) = schemas(tag("required", [function(parameters)], parallel=False))
    assert json.dumps(schema) == json.dumps(
        {
            "properties": {"a": {}, "b": {"properties": {"a": {}, "z": {}}}},
            "type": "object",
        }
    )


def function(parameters: Any, name: str = "f") -> dict[str, Any]:
    return {"function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^[^|]{0,3}$"}),
        ({"type": "string", "minLength": 2}, {"type": "string", "pattern": "^[^|]{2,}$"}),
        (
            {"type": ["string", "null"], "minLength": 1, "maxLength": 2},
            {"type": ["string", "null"], "pattern": "^[^|]{1,2}$"},
        ),
        ({"type": "string", "maxLength": 3, "pattern": "a"},) * 2,
        ({"type": "array", "maxLength": 3},) * 2,
        ({"enum": [{"type": "string", "maxLength": 3}]},) * 2,
        ({"const": {"type": "string", "maxLength": 3}},) * 2,
    ],
)
def test_length_limits_survive_as_patterns(before: Any, after: Any) -> None:
    parameters = {"type": "object", "properties": {"a": before}}
    (schema,) = schemas(tag("required", [function(parameters)], parallel=False))
    assert schema["properties"]["a"] == after


@pytest.mark.parametrize(
    ("choice", "tools", "field", "message"),
    [
        pytest.param("always", TOOLS, "tool_choice", "none, auto, required", id="word"),
        pytest.param(5, TOOLS, "tool_choice", "must be an object", id="number"),
        pytest.param("required", [], "tool_choice", "no tool", id="required-no-tools"),
        pytest.param(NAMED, None, "tool_choice", "'now'", id="named-no-tools"),
        pytest.param(
            {"function": {"name": "x"}}, TOOLS, "tool_choice", "get_weather, now", id="unknown"
        ),
        pytest.param({"function": {}}, TOOLS, "tool_choice", "names no function", id="nameless"),
        pytest.param(
            {"type": "allowed_tools", "allowed_tools": {"mode": "any"}},
            TOOLS,
            "tool_choice.allowed_tools.mode",
            "auto or required",
            id="allowed-mode",
        ),
        pytest.param(
            "auto",
            [function({"type": "array"})],
            "tools[0].function.parameters.type",
            "object",
            id="array-arguments",
        ),
        pytest.param(
            "auto",
            [function({}, "a<|end_message|>")],
            "tools[0].function.name",
            "<|end_message|>",
            id="marker-name",
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused(
    choice: Any, tools: Any, field: str, message: str
) -> None:
    with pytest.raises(RenderError) as caught:
        tag(choice, tools)
    assert caught.value.field == field
    assert message in str(caught.value)
