"""Thinking effort: the words and numbers that a request may give, and the line they become.

Not here: where the line stands in the prompt (``render``). The parser never looks at the effort,
so two spellings of one effort cannot be parsed differently.

    none = 0 = 0.0   minimal = 0.1   low = 0.2   medium = 0.7   high = 0.9   xhigh = max = 0.99
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from inkling_parsers.render_errors import EffortError, shown

EFFORT_WORDS: Mapping[str, float] = MappingProxyType(
    {
        "none": 0.0,
        "minimal": 0.1,
        "low": 0.2,
        "medium": 0.7,
        "high": 0.9,
        "xhigh": 0.99,
        "max": 0.99,
    }
)
DEFAULT_EFFORT = 0.9
MAX_EFFORT = 0.99


def resolve_effort(
    value: object, *, default: object = DEFAULT_EFFORT, maximum: float = MAX_EFFORT
) -> float:
    """The effort as a number in [0, maximum].

    `value` is what the request says; None means that it says nothing, and `default` (the server's
    setting, a word or a number too) holds. Raises EffortError for an unknown word, a boolean, NaN,
    a number out of range, or anything that is neither word nor number.
    """
    chosen = default if value is None else value
    if isinstance(chosen, str):
        if chosen not in EFFORT_WORDS:
            words = ", ".join(EFFORT_WORDS)
            raise EffortError(
                f"unknown word {shown(chosen)}; use one of {words}, or a number in [0, {maximum}]"
            )
        return EFFORT_WORDS[chosen]
    if isinstance(chosen, bool) or not isinstance(chosen, (int, float)):
        raise EffortError(
            f"must be a word or a number in [0, {maximum}], "
            f"got {type(chosen).__name__} {shown(chosen)}"
        )
    # The comparison is written so that NaN fails it; it comes before float(), which a huge int
    # would overflow.
    if not 0 <= chosen <= maximum:
        raise EffortError(f"must be in [0, {maximum}], got {shown(chosen)}")
    return float(chosen) + 0.0  # -0.0 becomes 0.0


def effort_from_request(body: Mapping[str, Any], *, default: object = DEFAULT_EFFORT) -> float:
    """The effort that a chat request asks for, in the dialects that clients speak.

    In order: ``chat_template_kwargs.reasoning_effort``, ``reasoning_effort``, ``reasoning.effort``
    (OpenAI), then the on/off switches ``thinking.type == "disabled"`` (Anthropic) and
    ``chat_template_kwargs.enable_thinking == false``, which mean "none"; else `default`.
    Raises EffortError as resolve_effort does.
    """
    extra = _section(body, "chat_template_kwargs")
    for section in (extra, body, {"reasoning_effort": _section(body, "reasoning").get("effort")}):
        value = section.get("reasoning_effort")
        if value is not None:
            return resolve_effort(value)
    switched_off = (
        _section(body, "thinking").get("type") == "disabled"
        or extra.get("enable_thinking") is False
    )
    return resolve_effort("none" if switched_off else None, default=default)


def effort_text(effort: float, *, zero: str = "0.0") -> str:
    """The text of the effort block; `effort` has been resolved. Two decimals, no trailing zeros.

    `zero` is how an effort that rounds to nothing is spelled.
    """
    digits = f"{effort:.2f}".rstrip("0").rstrip(".")
    return f"Thinking effort level: {zero if digits == '0' else digits}"


def owner_rounded(effort: float) -> float:
    """`effort` in hundredths as tml-renderers rounds it: to thousandths, then halves to even.

    It differs from rounding the number itself: 0.2254 becomes 0.225, then 0.22.
    """
    return round(round(effort * 1000) / 10) / 100


def _section(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}
