"""Forced tool choice: a grammar, as an xgrammar structural tag, for what the model may sample.

Not here: handing the tag to an engine (``adapters``) and reading what was sampled (``parser``).
The tag is a plain dict, so this module needs no grammar library. Every marker is demanded as a
*token*, so that text which spells a marker cannot stand for it:

    answer   = [THINKING text END MODEL] call (MODEL call)*      required; one call where named
    answer   = block (MODEL block)*                              auto
    block    = TEXT text END | THINKING text END | call
    call     = NAME INVOKE_TOOL_JSON {"name":"NAME","args":ARGS} END

The prompt already ends in the role marker MODEL, so the first block does not demand it again. The
stop token is not part of the grammar: engines allow it where the grammar may end. Install the tag
from the first sampled token on and say `reasoning=True` where the model may think first; an engine
that waits for the reasoning to end needs `role_open=False`.

To xgrammar a special token is its spelling, so strings in arguments must not hold "<|"; a model can
still write it with an escape. (Excluding the 60 spellings instead took 8.6 s of CPU for a grammar
over the published vocabulary; this takes 0.06 s.) Two limits remain under xgrammar 0.2: a string
with its own `pattern` or `format` is matched by that alone, so a pattern that allows "<|...|>" also
allows special tokens; and "|" is not allowed in a string with a length limit, which is how the
limit survives the exclusion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from inkling_parsers.canonical_json import write_json
from inkling_parsers.markers import REQUIRED, Marker, SpecialTokens
from inkling_parsers.messages import read_fields, read_items, read_tool_strictness, read_tools
from inkling_parsers.render_errors import Place, shown

Format = dict[str, Any]
ToolChoice = Union[str, Mapping[str, Any], None]  # noqa: UP007 - evaluated at import on 3.10

# Below these keys stands data, which may look like a schema and is none.
_DATA_KEYS = ("const", "enum", "default", "examples")
_OWN_TYPE = ("$ref", "anyOf", "oneOf", "allOf", "const", "enum")


def structural_tag(
    tools: Iterable[Any] | None,
    tool_choice: ToolChoice,
    *,
    reasoning: bool,
    strict: bool,
    parallel: bool = True,
    role_open: bool = True,
    tokens: SpecialTokens | None = None,
) -> dict[str, Any] | None:
    """The structural tag that enforces `tool_choice`, or None where there is nothing to enforce.

    `tools` and `tool_choice` have OpenAI's form: "auto", "required", "none" or None, a named
    function, or "allowed_tools". `reasoning` allows a thinking block before the call. `strict`
    holds all arguments to their schemas; otherwise only tools that say `strict: true` are held, and
    the rest may have any JSON object. `parallel` allows several calls where no tool is named.
    `role_open`: the prompt ends in <|message_model|>. `tokens`: the special tokens of the
    vocabulary; without them only the markers that every vocabulary has are kept out of text.
    Raises RenderError for a choice or a schema that cannot be enforced.
    """
    functions = _functions(tools, strict)
    mode, allowed = _read_choice(tool_choice)
    if allowed is not None:
        functions = [_named(functions, name) for name in allowed]
    if mode == "none" or (mode == "auto" and not functions):
        return None
    if not functions:
        raise _CHOICE.error("demands a tool call, but there is no tool to call")

    grammar = _Grammar(tokens)
    calls = _either([grammar.call(function) for function in functions])
    if mode == "auto":
        answer = grammar.auto(calls)
    else:
        answer = grammar.forced(calls, reasoning, parallel and mode == "required")
    if not role_open:
        answer = _sequence(grammar.marker(Marker.MESSAGE_MODEL), answer)
    return {"type": "structural_tag", "format": answer}


_CHOICE = Place(None, "tool_choice")


@dataclass(frozen=True)
class _Function:
    name: str
    schema: Mapping[str, Any]


def _functions(tools: Iterable[Any] | None, strict: bool) -> list[_Function]:
    place = Place(None, "tools")
    listed = list(tools or ())
    functions: list[_Function] = []
    flags = read_tool_strictness(listed, place)
    for index, (tool, says_strict) in enumerate(zip(read_tools(listed, place), flags, strict=True)):
        spot = place.item(index).key("function")
        _refuse_markers(tool["name"], spot.key("name"))
        held = strict or says_strict
        schema = _object_schema(tool["parameters"], spot.key("parameters")) if held else _ANY_OBJECT
        functions.append(_Function(tool["name"], schema))
    return functions


_MARKER_START = "<|"
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def _refuse_markers(name: str, place: Place) -> None:
    for marker in Marker:
        if marker.value in name:
            raise place.error(f"spells the special token {marker.value}")


def _object_schema(parameters: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """`parameters` as a schema for an object, its keys in the order in which prompts show them.

    Grammars hold properties to the order of the schema, and the model has learnt sorted keys.
    """
    schema = json.loads(write_json(dict(parameters), place))
    if "type" not in schema and not any(key in schema for key in _OWN_TYPE):
        schema["type"] = "object"
    if "type" in schema and "object" not in _type_names(schema):
        raise place.key("type").error(f"must be object, got {shown(schema['type'])}")
    return _lengths_as_patterns(schema)


def _type_names(schema: Mapping[str, Any]) -> Sequence[Any]:
    names = schema.get("type")
    return names if isinstance(names, list) else [names]


def _lengths_as_patterns(node: Any) -> Any:
    """The schema with each bare length limit spelled as a pattern, which exclusions leave alone."""
    if isinstance(node, list):
        return [_lengths_as_patterns(item) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {
        key: value if key in _DATA_KEYS else _lengths_as_patterns(value)
        for key, value in node.items()
    }
    limited = copy.keys() & {"minLength", "maxLength"} and not copy.keys() & {"pattern", "format"}
    if not limited or "string" not in _type_names(copy):
        return copy
    low, high = copy.pop("minLength", 0), copy.pop("maxLength", "")
    return {**copy, "pattern": f"^[^|]{{{low},{high}}}$"}


def _read_choice(choice: ToolChoice) -> tuple[str, Sequence[str] | None]:
    """The mode and, where the choice names tools, their names."""
    if choice is None:
        return "none", None
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            raise _CHOICE.error(
                f"unknown word {shown(choice)}; use none, auto, required or a named function"
            )
        return choice, None
    fields = read_fields(choice, _CHOICE)
    if fields.get("type") != "allowed_tools":
        return "named", [_choice_name(fields, _CHOICE)]
    place = _CHOICE.key("allowed_tools")
    inner = read_fields(fields.get("allowed_tools", fields), place)
    mode = inner.get("mode")
    if mode not in ("auto", "required"):
        raise place.key("mode").error(f"must be auto or required, got {shown(mode)}")
    spots = read_items(inner.get("tools"), place.key("tools"))
    return mode, [_choice_name(read_fields(tool, spot), spot) for tool, spot in spots]


def _choice_name(fields: Mapping[str, Any], place: Place) -> str:
    """The name in Chat Completions' nested form or in Responses' flat one."""
    name = read_fields(fields.get("function", fields), place).get("name")
    if not isinstance(name, str) or not name:
        raise place.error(f"names no function: {shown(dict(fields))}")
    return name


def _named(functions: Sequence[_Function], name: str) -> _Function:
    for function in functions:
        if function.name == name:
            return function
    known = ", ".join(function.name for function in functions) or "none"
    raise _CHOICE.error(f"names {shown(name)}, which is not among the tools: {known}")


class _Grammar:
    """Formats over the special tokens of one vocabulary: ids where it is known, else spellings.

    xgrammar 0.2.8 shares token masks between the grammars of one compiler, by the shape of a rule
    from some state on, and leaves the ids of its token edges out of that shape. Hence no rule here
    goes on behind an optional part that ends in a marker: an answer with thinking and one without
    are two alternatives. (With an optional part, 32 of the 132 ordered pairs of the tests' grammars
    in one compiler mixed; so, none did.)
    """

    def __init__(self, tokens: SpecialTokens | None) -> None:
        self._tokens = tokens
        if tokens is None:
            self._special: list[Any] = [marker.value for marker in REQUIRED]
        else:
            self._special = sorted(tokens.markers)

    def marker(self, marker: Marker) -> Format:
        known = self._tokens
        return {"type": "token", "token": marker.value if known is None else known.ids[marker]}

    def call(self, function: _Function) -> Format:
        name = json.dumps(function.name, ensure_ascii=False)
        return _sequence(
            _constant(function.name),
            self.marker(Marker.CONTENT_INVOKE_TOOL_JSON),
            _constant(f'{{"name":{name},"args":'),
            {
                "type": "json_schema",
                "json_schema": dict(function.schema),
                "excludes": [_MARKER_START],
            },
            _constant("}"),
            self.marker(Marker.END_MESSAGE),
        )

    def auto(self, calls: Format) -> Format:
        texts = [self._text(Marker.CONTENT_TEXT), self._text(Marker.CONTENT_THINKING)]
        return self._repeated(_either([*texts, calls]))

    def forced(self, calls: Format, reasoning: bool, several: bool) -> Format:
        answer = self._repeated(calls) if several else calls
        if not reasoning:
            return answer
        after_thinking = _sequence(self.marker(Marker.MESSAGE_MODEL), answer)
        return _either([answer, _sequence(self._text(Marker.CONTENT_THINKING), after_thinking)])

    def _text(self, kind: Marker) -> Format:
        text = {"type": "any_tokens", "exclude_tokens": self._special}
        return _sequence(self.marker(kind), text, self.marker(Marker.END_MESSAGE))

    def _repeated(self, block: Format) -> Format:
        another = _sequence(self.marker(Marker.MESSAGE_MODEL), block)
        return _sequence(block, {"type": "star", "content": another})


def _sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def _either(elements: list[Format]) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": elements}


def _constant(text: str) -> Format:
    return {"type": "const_string", "value": text}
