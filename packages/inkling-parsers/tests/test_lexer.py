"""Both lexers: what is a marker, what is text, and what is held back."""

from __future__ import annotations

import pytest

from inkling_parsers.lexer import IdLexer, TextLexer
from inkling_parsers.markers import SPELLINGS, Marker, SpecialTokens

NAMED = {marker.value: at for at, marker in enumerate(Marker) if marker is not Marker.UNNAMED}
TOKENS = SpecialTokens.from_vocab({**NAMED, "<|unused_77|>": 77, "hello": 500})


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_one_marker_however_it_is_cut(name):
    for pieces in ([f"a{name}b"], list(f"a{name}b"), [f"a{name[:5]}", name[5:], "b"]):
        lexer = TextLexer()
        found = [item for piece in pieces for item in lexer.feed(piece)] + lexer.finish()
        assert found == [(None, "a"), (SPELLINGS[name], name), (None, "b")]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_start_of_a_marker_is_held_and_then_let_go(name):
    for size in range(1, len(name)):
        lexer = TextLexer()
        assert lexer.feed("x" + name[:size]) == [(None, "x")]
        assert lexer.finish() == [(None, name[:size])]
        assert lexer.feed(name[:size]) == []
        assert lexer.feed("!") == [(None, name[:size] + "!")]


@pytest.mark.parametrize(
    "text", ["a < b", "<<", "<|end_nope|>", "|>", "<||>", "</", "<|END_MESSAGE|>"]
)
def test_text_that_only_looks_alike_passes(text):
    lexer = TextLexer()
    pieces = [item for char in text for item in lexer.feed(char)] + lexer.finish()
    assert all(marker is None for marker, _ in pieces)
    assert "".join(piece for _, piece in pieces) == text


def test_a_special_id_is_a_marker_and_the_text_beside_it_is_not_looked_at():
    lexer = IdLexer(TOKENS)
    pieces = lexer.feed([500, NAMED["<|end_message|>"], 501], ["<|end_message|>", "", "x"])
    assert pieces == [
        (None, "<|end_message|>"),
        (Marker.END_MESSAGE, "<|end_message|>"),
        (None, "x"),
    ]


def test_an_unnamed_special_id_is_a_marker_too():
    assert IdLexer(TOKENS).feed([77]) == [(Marker.UNNAMED, "<|unused_77|>")]


def test_decode_gets_runs_of_ordinary_ids_only():
    runs: list[list[int]] = []

    def decode(ids: list[int]) -> str:
        runs.append(ids)
        return "w" * len(ids)

    pieces = IdLexer(TOKENS, decode).feed([500, 501, NAMED["<|end_message|>"], 77, 502])
    assert runs == [[500, 501], [502]]
    assert [text for _, text in pieces] == ["ww", "<|end_message|>", "<|unused_77|>", "w"]


def test_ids_without_text_are_refused():
    with pytest.raises(ValueError, match="no text for the ordinary id 500"):
        IdLexer(TOKENS).feed([500])
    with pytest.raises(ValueError, match="2 ids came with 1 texts"):
        IdLexer(TOKENS).feed([500, 501], ["a"])


def test_a_cut_character_is_flushed_by_a_marker_and_by_the_end():
    lexer = IdLexer(TOKENS, lambda ids: bytes(id_ - 500 for id_ in ids))
    euro = [500 + byte for byte in "€".encode()]
    assert lexer.feed(euro[:2]) == []
    assert lexer.feed(euro[2:]) == [(None, "€")]
    assert lexer.feed([*euro[:1], NAMED["<|end_message|>"]]) == [
        (None, "\ufffd"),
        (Marker.END_MESSAGE, "<|end_message|>"),
    ]
    assert lexer.feed(euro[:2]) == [] and lexer.finish() == [(None, "\ufffd")]
