"""decisions.toml: it is TOML, it is complete, and every entry can be explained."""

from __future__ import annotations

import sys
from importlib import resources

import pytest

from inkling_parsers.check.decisions import load_decisions, read_entries

TEXT = resources.files("inkling_parsers").joinpath("decisions.toml").read_text(encoding="utf-8")
RULES = ("stands", "trim", "numbers")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_our_reader_agrees_with_toml():
    import tomllib  # type: ignore[import-not-found]  # Python 3.10 has none

    assert read_entries(TEXT) == tomllib.loads(TEXT)["decision"]


def test_every_entry_is_whole():
    decisions = load_decisions()
    assert len({decision.topic for decision in decisions}) == len(decisions) > 20
    for decision in decisions:
        assert decision.choice and decision.reason
        assert bool(decision.case) != bool(decision.tag)
        assert decision.row in RULES or decision.row.startswith("error ")


@pytest.mark.parametrize(
    ("row", "topics"),
    [
        ({"id": "f04-x"}, ["whitespace", "an opener inside an open block"]),
        ({"id": "P14-x"}, ["whitespace", "an opener inside an open block, strict"]),
        ({"id": "z", "tags": ["coercion"]}, ["whitespace", "schema coercion"]),
    ],
)
def test_covers(row, topics):
    assert [decision.topic for decision in load_decisions() if decision.covers(row)] == topics


def test_an_unreadable_line_is_named():
    with pytest.raises(ValueError, match="line 2"):
        read_entries("[[decision]]\nnonsense\n")
