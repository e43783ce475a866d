"""The scanner of one JSON value, held to the standard library's judgement at every split."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parser_transcripts import EDGES, JSON_TEXTS, TEXTS, cut

from inkling_parsers.json_span import MAX_DEPTH, NESTING, JsonSpan

EXAMPLES = settings(max_examples=int(os.environ.get("INKLING_EXAMPLES", "50")), deadline=None)

VALID = [
    "{}",
    "[]",
    '""',
    "-0",
    "1E-7",
    "1180591620717411303424",
    "true",
    "null",
    '{"a":[{},[],"",0.5,false],"a":{"b":{"c":null}}}',
    ' \n\t{ "a" :\r[ 1 , "\\u00e9\\"\\\\\\/" ] }',
    '{"s":"a & b &amp; &quo; }]","t":"é\U0001f680"}',
    "9" * 400,
]
INVALID = [
    "{,}",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{"a" 1}',
    "{'a':1}",
    "{1:2}",
    "[1,]",
    "[1 2]",
    "[,]",
    "[1}",
    '{"a":1]',
    "[01]",
    "[+1]",
    "[1.]",
    "[.5]",
    "[1e]",
    "[NaN]",
    "[tru]",
    "[nulll]",
    '["\t"]',
    '["\\x"]',
    '["\\u12g4"]',
    '["a" "b"]',
    "[@]",
]


def read(pieces: list[str]) -> tuple[JsonSpan, str, str]:
    """(span, what it took, what it left) of a stream, with the caller's part: keep what is left."""
    span = JsonSpan()
    taken: list[str] = []
    rest = ""
    for last, piece in [*((False, piece) for piece in pieces), (True, "")]:
        text = rest + piece
        stop = span.scan(text, 0, final=last)
        taken.append(span.take(text, 0, stop))
        rest = text[stop:]
    return span, "".join(taken), rest


@pytest.mark.parametrize("text", VALID)
def test_valid(text):
    for pieces in ([text], list(text)):
        span, taken, rest = read(pieces)
        assert (span.done, span.fault, taken, rest) == (True, None, text, "")


@pytest.mark.parametrize("text", INVALID)
def test_invalid_has_a_fault_and_still_an_end(text):
    with pytest.raises(ValueError):
        json.loads(text, parse_constant=lambda word: json.loads(""))
    for pieces in ([text + ",x"], list(text + ",x")):
        span, taken, rest = read(pieces)
        assert span.fault is not None
        assert (span.done, taken, rest) == (True, text, ",x")


@pytest.mark.parametrize("text", ['{"a":[1,"}"]}', '"a\\"b"', "12", "null", "[[]]"])
def test_stops_behind_the_value(text):
    for pieces in ([text + ' ,"x":1}'], list(text + ' ,"x":1}')):
        span, taken, rest = read(pieces)
        assert (span.done, taken, rest) == (True, text, ' ,"x":1}')


@pytest.mark.parametrize("depth", [1, 999, MAX_DEPTH, MAX_DEPTH + 1, 5000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}"), ('[{"k":', "}]")], ids=str)
def test_nesting(depth, brackets):
    levels = depth // brackets[0].count("[") if brackets[0] == '[{"k":' else depth
    text = brackets[0] * levels + "1" + brackets[1] * levels
    span, taken, _ = read([text])
    deepest = text.count("[") + text.count("{")
    assert taken == text and span.done
    assert (span.fault is None) == (deepest <= MAX_DEPTH)
    assert span.fault is None or span.fault.startswith(NESTING)


def test_numbers_have_a_length_limit_that_no_split_changes():
    text = "[" + "1" * 600 + "]"
    faults = {read(pieces)[0].fault for pieces in ([text], list(text))}
    assert len(faults) == 1 and None not in faults


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ('{"a":1', True),
        ('{"a":{"b":1}', True),
        ('{"a":"x"', True),
        ("{", True),
        ('{"a":1}', False),
        ('{"a":{"b":1', False),
        ('{"a":1,', False),
        ('{"a":', False),
        ('{"a"', False),
        ('{"a":"x', False),
        ("[1", False),
        ('{"a":NaN', False),
    ],
)
def test_one_brace_short(text, short):
    assert read([text])[0].one_brace_short is short
    if short:
        json.loads(text + "}")


def test_an_encoded_quote_inside_a_string_is_asked_about():
    span = JsonSpan()
    text = '{"a":"x&quot;,1}'
    stop = span.scan(text, 0)
    assert span.doubt and text[stop:].startswith("&quot;")
    span.resume(as_text=False)
    end = span.scan(text, stop)
    assert span.take(text, stop, end) == '",1}'
    assert span.fault, "a number is no member's name"


@EXAMPLES
@given(JSON_TEXTS, EDGES)
def test_what_json_writes_is_valid_at_every_split(text, edges):
    if "&quot;" in text or "&#34;" in text:
        return
    span, taken, rest = read([text[a:b] for a, b in cut(len(text), edges)])
    assert (span.done, span.fault, taken, rest) == (True, None, text, "")


@EXAMPLES
@given(JSON_TEXTS, st.integers(0, 1 << 16), TEXTS, EDGES)
def test_judges_as_the_standard_library(text, at, word, edges):
    at %= len(text) + 1
    text = text[:at] + word + text[at + 1 :]
    if "&" in text or not text.strip():
        return
    try:
        json.loads(text, parse_constant=lambda word: json.loads(""))
        valid = True
    except ValueError:
        valid = False
    whole = read([text])
    span, _, rest = whole
    assert valid == (span.done and span.fault is None and not rest.strip(" \t\n\r"))
    parts = read([text[a:b] for a, b in cut(len(text), edges)])
    assert (parts[0].done, parts[0].fault, *parts[1:]) == (span.done, span.fault, *whole[1:])
