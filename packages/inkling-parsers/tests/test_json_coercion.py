"""Values under schemas: what changes, what may not, and that nothing is lost on the way."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from inkling_parsers.json_coercion import coerce_arguments

# A machine that is busy elsewhere is no fault of the code under test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

BOOK = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "note": {"type": "string"},
        "who": {"type": "object", "properties": {"age": {"type": "integer"}}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "limit": {"type": ["integer", "null"]},
        "ref": {"$ref": "#/$defs/Count"},
    },
    "$defs": {"Count": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("sent", "coerced"),
    [
        ('{"n":"5"}', '{"n": 5}'),
        ('{"note":5}', '{"note": "5"}'),
        ('{"note":1.50}', '{"note": "1.50"}'),
        ('{"note":true}', '{"note": "true"}'),
        ('{"ids":["1","2"]}', '{"ids": [1, 2]}'),
        ('{"ids":"[1,2]"}', '{"ids": [1, 2]}'),
        ('{"ids":"[\\"1\\"]"}', '{"ids": [1]}'),
        ('{"ok":"false"}', '{"ok": false}'),
        ('{"price":"1e3"}', '{"price": 1e3}'),
        ('{"who":"{\\"age\\":\\"7\\"}"}', '{"who": {"age": 7}}'),
        ('{"who":{"age":"7"}}', '{"who": {"age": 7}}'),
        ('{"either":"3"}', '{"either": 3}'),
        ('{"limit":"3"}', '{"limit": 3}'),
        ('{"ref":"3"}', '{"ref": 3}'),
        ('{"note":"hello","n":"5"}', '{"note": "hello", "n": 5}'),
        # what need not change keeps its digits and letters where its neighbour changes
        ('{"n":"5","price":0.10000000000000000555}', '{"n": 5, "price": 0.10000000000000000555}'),
        ('{"n":"5","note":"Grüße"}', '{"n": 5, "note": "Grüße"}'),
        ('{"n":"5","note":"\\ud800"}', '{"n": 5, "note": "\\ud800"}'),
    ],
)
def test_a_value_of_the_wrong_type_is_respelled(sent: str, coerced: str):
    assert coerce_arguments(sent, BOOK) == coerced
    coerced.encode()


@pytest.mark.parametrize(
    "sent",
    [
        '{"n":5.0}',
        '{"n":"5.5"}',
        '{"n":"05"}',
        '{"n":" 5"}',
        '{"n":"five"}',
        '{"n":true}',
        '{"note":null}',
        '{"note":{"a":1}}',
        '{"ok":"True"}',
        '{"ids":["1",',
        '{"n":"5","n":"6"}',
        '{"n":"5","price":NaN}',
        '[{"n":"5"}]',
        '{"unknown":"5"}',
        '{ "n" : 5 }',
        "",
    ],
)
def test_everything_else_comes_back_byte_for_byte(sent: str):
    assert coerce_arguments(sent, BOOK) == sent


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"properties": {"n": {"$ref": "#/nowhere"}}},
        {"properties": {"n": {"type": 3}}},
        {"properties": 1, "additionalProperties": True},
        {"anyOf": [1, None], "items": 5},
    ],
)
def test_a_schema_that_says_nothing_changes_nothing(schema: dict[str, object]):
    assert coerce_arguments('{"n":"5"}', schema) == '{"n":"5"}'


def test_a_schema_that_names_itself_ends():
    tree = {
        "properties": {
            "value": {"type": "integer"},
            "child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        }
    }
    sent = '{"value":"1","child":{"value":"2","child":null}}'
    assert coerce_arguments(sent, tree) == '{"value": 1, "child": {"value": 2, "child": null}}'


def test_depth_is_bounded():
    nested = '{"a":' * 5000 + '"1"' + "}" * 5000
    schema = {"properties": {"a": {"$ref": "#"}}}
    assert coerce_arguments(nested, schema) == nested


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@UNHURRIED
@given(st.dictionaries(st.sampled_from([*BOOK["properties"], "other"]), _json))
def test_coercion_settles_in_one_step_and_keeps_the_keys(arguments: dict[str, object]):
    once = coerce_arguments(json.dumps(arguments), BOOK)
    assert list(json.loads(once)) == list(arguments)
    assert coerce_arguments(once, BOOK) == once
