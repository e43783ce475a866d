"""Efforts: aliases mean the same, everything else is refused, a request overrides the server."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkling_parsers.effort import (
    EFFORT_WORDS,
    effort_from_request,
    effort_text,
    resolve_effort,
)
from inkling_parsers.render import render
from inkling_parsers.render_errors import EffortError

ALIASES: list[tuple[object, ...]] = [
    ("none", 0, 0.0, -0.0),
    ("minimal", 0.1),
    ("low", 0.2),
    ("medium", 0.7),
    ("high", 0.9),
    ("xhigh", "max", 0.99),
]
REFUSED = [
    pytest.param("hgih", id="misspelled"),
    pytest.param("High", id="capital"),
    pytest.param("", id="empty"),
    pytest.param("0.9", id="number-as-text"),
    pytest.param(True, id="true"),
    pytest.param(False, id="false"),
    pytest.param(1, id="one"),
    pytest.param(0.991, id="above"),
    pytest.param(-0.01, id="negative"),
    pytest.param(10**400, id="beyond-float"),
    pytest.param(math.nan, id="nan"),
    pytest.param(math.inf, id="infinity"),
    pytest.param([0.5], id="list"),
    pytest.param({"effort": "low"}, id="object"),
]


@pytest.mark.parametrize("aliases", ALIASES, ids=lambda group: str(group[0]))
def test_aliases_give_one_prompt(aliases: tuple[Any, ...]) -> None:
    messages = [{"role": "user", "content": "x"}]
    prompts = {render(messages, effort=alias) for alias in aliases}
    assert len(prompts) == 1
    assert {math.copysign(1, resolve_effort(alias)) for alias in aliases} == {1.0}


def test_each_word_has_its_own_line() -> None:
    lines = {word: effort_text(resolve_effort(word)) for word in EFFORT_WORDS}
    assert lines == {
        "none": "Thinking effort level: 0.0",
        "minimal": "Thinking effort level: 0.1",
        "low": "Thinking effort level: 0.2",
        "medium": "Thinking effort level: 0.7",
        "high": "Thinking effort level: 0.9",
        "xhigh": "Thinking effort level: 0.99",
        "max": "Thinking effort level: 0.99",
    }


@pytest.mark.parametrize("value", REFUSED)
def test_refused_efforts_say_what_is_allowed(value: Any) -> None:
    with pytest.raises(EffortError) as caught:
        resolve_effort(value)
    assert "[0, 0.99]" in str(caught.value)
    if isinstance(value, str):
        assert "none, minimal, low, medium, high, xhigh, max" in str(caught.value)
    with pytest.raises(EffortError):
        render([{"role": "user", "content": "x"}], effort=value)
    with pytest.raises(EffortError):  # a server's default is held to the same rule
        resolve_effort(None, default=value)


@pytest.mark.parametrize(
    ("text", "value"), [("0.12", 0.125), ("0.14", 0.135), ("0.5", 0.5), ("0.05", 0.05)]
)
def test_two_decimals_without_trailing_zeros(text: str, value: float) -> None:
    assert effort_text(value) == f"Thinking effort level: {text}"


@pytest.mark.parametrize(
    ("served", "owner", "value"),
    [
        ("0.23", "0.22", 0.2254),
        ("0.01", "0.02", 0.015),
        ("0.87", "0.86", 0.8653),
        ("1", "1", 0.996),
    ],
)
def test_the_owner_rounds_twice(served: str, owner: str, value: float) -> None:
    assert effort_text(value) == f"Thinking effort level: {served}"
    messages = [{"role": "user", "content": "x"}]
    assert f"level: {owner}<|" in render(messages, effort=value, flavor="owner").text


@given(st.floats(min_value=0, max_value=0.99))
def test_any_effort_in_range_keeps_its_value_to_two_decimals(value: float) -> None:
    shown = effort_text(resolve_effort(value)).removeprefix("Thinking effort level: ")
    assert abs(float(shown) - value) <= 0.005 + 1e-12


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({}, 0.2, id="nothing"),
        pytest.param({"reasoning_effort": None}, 0.2, id="null"),
        pytest.param({"reasoning_effort": "high"}, 0.9, id="word"),
        pytest.param({"reasoning_effort": 0}, 0.0, id="zero-is-no-absence"),
        pytest.param({"reasoning": {"effort": "max"}}, 0.99, id="nested"),
        pytest.param({"chat_template_kwargs": {"reasoning_effort": 0.5}}, 0.5, id="template"),
        pytest.param(
            {"chat_template_kwargs": {"reasoning_effort": 0.5}, "reasoning_effort": "low"},
            0.5,
            id="template-first",
        ),
        pytest.param({"thinking": {"type": "disabled"}}, 0.0, id="thinking-disabled"),
        pytest.param({"thinking": {"type": "enabled"}}, 0.2, id="thinking-enabled"),
        pytest.param({"chat_template_kwargs": {"enable_thinking": False}}, 0.0, id="switched-off"),
        pytest.param({"chat_template_kwargs": {"enable_thinking": True}}, 0.2, id="switched-on"),
    ],
)
def test_a_request_overrides_the_servers_default(body: dict[str, Any], expected: float) -> None:
    assert effort_from_request(body, default="low") == expected


def test_a_wrong_effort_in_a_request_is_not_replaced_by_the_default() -> None:
    with pytest.raises(EffortError):
        effort_from_request({"reasoning_effort": "hgih"}, default="low")
