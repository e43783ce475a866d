"""Coerce JSON argument text to a JSON schema: `{"n":"5"}` under `n: integer` becomes `{"n": 5}`.

Pure functions on whole values; when they are applied to a stream is `coercion`'s business. A value
is changed only where its type is one that the schema forbids and another spelling of the same
value is one that it allows:

    string -> integer | number | boolean | object | array     its text spells that value
    integer | number | boolean -> string                      its own spelling
Null is never turned into text. Numbers keep their digits. Text that is not one JSON object with
unique keys, or that needs no change, comes back as it was, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MAX_DEPTH = 100
_ALTERNATIVES = ("anyOf", "oneOf")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class _Number(str):
    """A number by its own digits, so that none is lost."""

    __slots__ = ()


class _NotPlain(ValueError):
    """JSON that cannot be rewritten without a choice: repeated keys, NaN, too deep."""


def coerce_arguments(arguments: str, schema: Mapping[str, Any]) -> str:
    """`arguments` with values coerced to `schema`, or unchanged. Never raises on bad JSON."""
    try:
        value = _load(arguments)
        if not isinstance(value, dict):
            return arguments
        coerced = _coerce(value, schema, schema, 0)
    except (ValueError, RecursionError):
        return arguments
    return arguments if coerced is value else _write(coerced)


def _load(text: str) -> Any:
    return json.loads(
        text,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse_constant,
        object_pairs_hook=_unique_keys,
    )


def _refuse_constant(name: str) -> Any:
    raise _NotPlain(name)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotPlain("repeated key")
    return members


def _coerce(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """The coerced value, or the very object `value` where nothing changes."""
    if depth > _MAX_DEPTH:
        raise _NotPlain("too deep")
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping):
        return value
    for key in _ALTERNATIVES:
        if isinstance(schema.get(key), list):
            return _coerce_to_any(value, schema[key], root, depth)
    allowed = _allowed_types(schema)
    if allowed and not _matches(value, allowed):
        value = _respelled(value, allowed)
    if isinstance(value, dict):
        return _coerce_members(value, schema, root, depth)
    if isinstance(value, list):
        items = schema.get("items")
        changed = [_coerce(item, items, root, depth + 1) for item in value]
        return value if _same(changed, value) else changed
    return value


def _coerce_to_any(value: Any, branches: list[Any], root: Mapping[str, Any], depth: int) -> Any:
    """The first branch that takes the value as it is wins, else the first that changes it."""
    plain = list(_plain_branches(branches, root, set()))
    for branch in plain:
        allowed = _allowed_types(branch)
        if not allowed or _matches(value, allowed):
            return _coerce(value, branch, root, depth + 1)
    for branch in plain:
        coerced = _coerce(value, branch, root, depth + 1)
        if coerced is not value:
            return coerced
    return value


def _plain_branches(
    branches: list[Any], root: Mapping[str, Any], seen: set[int]
) -> Iterator[Mapping[str, Any]]:
    """Alternatives without alternatives of their own, each once: a schema may name itself."""
    for branch in branches:
        branch = _resolved(branch, root)
        if not isinstance(branch, Mapping) or id(branch) in seen:
            continue
        seen.add(id(branch))
        nested = [branch[key] for key in _ALTERNATIVES if isinstance(branch.get(key), list)]
        if not nested:
            yield branch
        for inner in nested:
            yield from _plain_branches(inner, root, seen)


def _coerce_members(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> Any:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    other = schema.get("additionalProperties")
    changed = {
        key: _coerce(member, properties.get(key, other), root, depth + 1)
        for key, member in value.items()
    }
    return value if _same(changed.values(), value.values()) else changed


def _same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(left, right, strict=True))


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow local references (`#/$defs/x`); an unknown one leaves the value alone."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str):
            return schema
        if reference != "#" and not reference.startswith("#/"):
            return None
        schema = root
        for step in reference.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(step) if isinstance(schema, Mapping) else None
    return None


def _allowed_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    types = schema.get("type")
    if isinstance(types, str):
        return (types,)
    if isinstance(types, list):
        return tuple(name for name in types if isinstance(name, str))
    return ()


def _type_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, _Number):
        is_whole = _INTEGER.fullmatch(value) or float(value).is_integer()
        return ("integer", "number") if is_whole else ("number",)
    if isinstance(value, bool):
        return ("boolean",)
    if value is None:
        return ("null",)
    if isinstance(value, str):
        return ("string",)
    return ("object",) if isinstance(value, dict) else ("array",)


def _matches(value: Any, allowed: tuple[str, ...]) -> bool:
    return any(name in allowed for name in _type_names(value))


def _respelled(value: Any, allowed: tuple[str, ...]) -> Any:
    if isinstance(value, str) and not isinstance(value, _Number):
        return _from_text(value, allowed)
    if "string" in allowed:
        if isinstance(value, _Number):
            return str(value)
        if isinstance(value, bool):
            return "true" if value else "false"
    return value


def _from_text(text: str, allowed: tuple[str, ...]) -> Any:
    """The allowed value that `text` spells, else `text` itself (the same object)."""
    if "integer" in allowed and _INTEGER.fullmatch(text):
        return _Number(text)
    if "number" in allowed and _NUMBER.fullmatch(text):
        return _Number(text)
    if "boolean" in allowed and text in ("true", "false"):
        return text == "true"
    if text[:1] in ("{", "["):
        try:
            value = _load(text)
        except (ValueError, RecursionError):
            return text
        if _matches(value, allowed):
            return value
    return text


def _write(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        members = (f"{_write(key)}: {_write(member)}" for key, member in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_write(item) for item in value) + "]"
    spelled = json.dumps(value, ensure_ascii=False)
    # A lone surrogate cannot be sent as UTF-8; it stays the escape that it was.
    return spelled if spelled.isascii() or _is_text(spelled) else json.dumps(value)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
