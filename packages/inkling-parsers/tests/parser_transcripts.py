"""Strategies for transcripts: what a model may write, and what it never should. Used by tests."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import strategies as st

from inkling_parsers.check.splits import ByteVocabulary
from inkling_parsers.markers import Marker

VOCABULARY = ByteVocabulary()
NAMED = [marker.value for marker in Marker if marker is not Marker.UNNAMED]

# Text that lies in wait for every rule: brackets, quotes, entities, half markers, cut characters.
_TRAPS = st.sampled_from(
    [
        *'<&"\\{}[],: \n\x00\ufffdé',
        *("<|", "|>", "&quot;", "&q", "&#34;", "null", "-1.5e3", "0", "name", "args"),
        "\U0001f469\u200d\U0001f680",
    ]
)
TEXTS = st.lists(st.one_of(_TRAPS, st.text(max_size=6)), max_size=8).map("".join)

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
JSON_TEXTS = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    VALUES,
    st.booleans(),
    st.sampled_from([None, 1]),
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4).map(json.dumps)


@st.composite
def payloads(draw: st.DrawFn) -> str:
    """A tool payload: whole, or with something wrong."""
    name = json.dumps(draw(st.sampled_from(["f", "get_weather", "é", 'a"b'])))
    arguments = draw(st.one_of(ARGUMENTS, JSON_TEXTS, JSON_TEXTS.map(json.dumps)))
    key = draw(st.sampled_from(["args", "args", "args", "arguments"]))
    members = draw(st.permutations([f'"name":{name}', f'"{key}":{arguments}']))
    text = "{" + ",".join(members) + "}"
    wrong = draw(st.sampled_from(["", "", "cut", "swap", "entities", "array", "trail"]))
    at = draw(st.integers(0, len(text)))
    if wrong == "cut":
        return text[:at]
    if wrong == "swap":
        return text[:at] + draw(TEXTS) + text[at + 1 :]
    if wrong == "entities":
        return text[:at] + text[at:].replace('"', "&quot;", draw(st.integers(1, 5)))
    return {"array": f"[{text},{text}]", "trail": text + draw(TEXTS)}.get(wrong, text)


@st.composite
def blocks(draw: st.DrawFn) -> list[list[str]]:
    """Segments of one block as the format has it."""
    kind = draw(st.sampled_from(["text", "thinking", "invoke_tool_json", "invoke_tool_text"]))
    inside = draw(payloads() if kind == "invoke_tool_json" else TEXTS)
    header = draw(st.sampled_from(["", "", "f", "get_weather"]))
    role = draw(st.sampled_from(["", "<|message_model|>", "<|message_model|>", "<|message_user|>"]))
    return [
        *([["s", role]] if role else []),
        *([["t", header]] if header else []),
        ["s", f"<|content_{kind}|>"],
        *([["t", inside]] if inside else []),
        ["s", "<|end_message|>"],
    ]


MARKER = st.sampled_from(NAMED).map(lambda name: [["s", name]])
LOOSE = st.one_of(TEXTS, payloads()).filter(bool).map(lambda text: [["t", text]])

# Mostly blocks in order, with markers and words where none belong.
SEGMENTS = st.lists(st.one_of(blocks(), blocks(), blocks(), MARKER, LOOSE), max_size=6).map(
    lambda parts: [segment for part in parts for segment in part]
)


def spell(segments: list[list[str]]) -> str:
    """The text of segments."""
    return "".join(text for _, text in segments)


def cut(size: int, edges: list[int]) -> list[tuple[int, int]]:
    """Ranges that cover 0..size, cut at `edges` (taken modulo the size)."""
    inner = sorted(edge % (size + 1) for edge in edges)
    return list(pairwise([0, *inner, size]))


EDGES = st.lists(st.integers(0, 1 << 16), max_size=12)
