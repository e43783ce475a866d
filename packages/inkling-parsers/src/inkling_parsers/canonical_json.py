"""JSON as the chat format writes it: compact, keys sorted by code point, non-ASCII kept.

For rendering only. Reading what a model wrote is the parser's work, which keeps the text verbatim;
here a client's value is read and written anew.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from inkling_parsers.render_errors import Place, RenderError, shown


def write_json(value: Any, place: Place, *, sort_keys: bool = True) -> str:
    """`value` as canonical JSON text; `sort_keys` sorts at every depth.

    Raises RenderError at `place` for NaN, infinities, keys that are not strings, cycles, nesting
    beyond the interpreter's limit, lone surrogates, and values that JSON does not have.
    """
    try:
        text = json.dumps(
            value,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
            sort_keys=sort_keys,
        )
        text.encode()
    except RecursionError:
        raise place.error("is nested too deeply to be written as JSON") from None
    except (ValueError, TypeError) as error:
        raise place.error(f"cannot be written as JSON: {error}") from None
    _refuse_other_keys(value, place)
    return text


def read_object(text: str, place: Place, *, unique_keys: bool) -> dict[str, Any]:
    """The JSON object in `text`; the last of equal keys wins unless `unique_keys` forbids them.

    Raises RenderError at `place` where `text` is not JSON or holds no object.
    """

    def pairs_to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if unique_keys and len(members) != len(pairs):
            raise place.error("repeats a key")
        return members

    try:
        value = json.loads(text, object_pairs_hook=pairs_to_dict, parse_constant=_no_constant)
    except RecursionError:
        raise place.error("is nested too deeply to be read as JSON") from None
    except RenderError:
        raise
    except _NotJsonConstant as error:
        raise place.error(f"holds {error}, which JSON does not have") from None
    except ValueError as error:  # a syntax error, or an integer beyond the interpreter's limit
        raise place.error(f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise place.error(f"must hold a JSON object, got {type(value).__name__}")
    return value


def _refuse_other_keys(value: Any, place: Place) -> None:
    """json.dumps spells the keys 1 and "1" alike; it has run before, so `value` has no cycles."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise place.error(f"has the key {shown(key)}, which is not a string")
            pending.extend(node.values())
        elif isinstance(node, (list, tuple)):
            pending.extend(node)


class _NotJsonConstant(Exception):
    """NaN or an infinity in text that calls itself JSON."""


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonConstant(name)
