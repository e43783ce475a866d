"""Rows that say how messages are rendered: `messages`, and `expected` segments or error.

Rows of the served renderer are rendered with flavor "vllm". Rows of the owner's renderer (they
have `vllm_0_32`) with flavor "owner", and with "vllm" for what they say about that. Segments are
compared; ids only with a tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inkling_parsers.check.decisions import Decision
from inkling_parsers.check.outcome import Outcome, difference
from inkling_parsers.check.owner import by_value
from inkling_parsers.check.tokenizer import Tokenizer
from inkling_parsers.render import FlavorName, Rendered, render
from inkling_parsers.render_errors import RenderError


def check_render_row(
    row: Mapping[str, Any], decisions: list[Decision], tokenizer: Tokenizer | None
) -> Outcome:
    """Render one row in each flavor that it speaks of."""
    outcome = Outcome(row["id"], decision=decisions[-1] if decisions else None)
    numbers = any(decision.row == "numbers" for decision in decisions)
    expected = row["expected"]
    owner = "vllm_0_32" in row
    got = _rendered(row, "owner" if owner else "vllm")
    outcome.problems += _compare(got, expected, numbers, "owner" if owner else "vllm")
    if owner:
        served = expected if row["vllm_0_32"] == "same" else row["vllm_0_32"]
        outcome.problems += _compare(_rendered(row, "vllm"), served, numbers, "vllm")
    if tokenizer is not None and isinstance(got, Rendered) and "token_ids" in expected:
        ids = got.ids(tokenizer.encode, tokenizer.tokens)
        if not numbers and ids != expected["token_ids"]:
            outcome.problems.append(difference(expected["token_ids"], ids, "token ids"))
    return outcome


def _rendered(row: Mapping[str, Any], flavor: FlavorName) -> Rendered | RenderError:
    try:
        return render(
            _messages(row),
            row["tools"],
            row["reasoning_effort"],
            row["add_generation_prompt"],
            flavor=flavor,
        )
    except RenderError as error:
        return error


def _messages(row: Mapping[str, Any]) -> Any:
    """A row whose messages JSON cannot hold describes them: a call with NaN in its arguments."""
    if not isinstance(row["messages"], str):
        return row["messages"]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": _NAN}}}
    return [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]


_NAN = float("nan")


def _compare(
    got: Rendered | RenderError, expected: Mapping[str, Any], numbers: bool, flavor: str
) -> list[str]:
    if "error" in expected:
        name = expected["error"].split(":")[0]
        kinds = [kind.__name__ for kind in type(got).__mro__]
        return [] if name in kinds else [difference(expected, _shown(got), flavor)]
    if isinstance(got, RenderError):
        return [difference(expected, _shown(got), flavor)]
    wanted = expected.get("segments")
    if wanted is None:
        wanted, segments = [["", expected["text"]]], [["", got.text]]
    else:
        segments = [list(segment) for segment in got.segments]
    if numbers:
        wanted = [[kind, by_value(text)] for kind, text in wanted]
        segments = [[kind, by_value(text)] for kind, text in segments]
    return [] if segments == wanted else [difference(wanted, segments, flavor)]


def _shown(got: Rendered | RenderError) -> Any:
    if isinstance(got, RenderError):
        return {"error": type(got).__name__, "message": str(got)}
    return [list(segment) for segment in got.segments]
