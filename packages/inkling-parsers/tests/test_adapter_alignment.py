"""Cutting text at special ids: every lag, cut and look-alike, against the cut that is known."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from inkling_parsers.adapters.alignment import Piece, TokenText

# A machine that is busy elsewhere is no fault of the code under test.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPECIALS = {1000: "<|end_message|>", 1001: "<|message_model|>", 1002: "</s>"}


def decode(ids: list[int]) -> str:
    """Ordinary ids are bytes of UTF-8: half a character is one U+FFFD, as in real detokenizers."""
    return bytes(ids).decode(errors="replace")


def ids_of(items: list[str | int]) -> list[int]:
    return [
        token for item in items for token in ([item] if isinstance(item, int) else item.encode())
    ]


def joined(pieces: list[Piece]) -> list[str | int]:
    """Specials as ids, neighbouring text joined."""
    out: list[str | int] = []
    for special, text in pieces:
        if special is not None:
            out.append(special)
        elif out and isinstance(out[-1], str):
            out[-1] += text
        else:
            out.append(text)
    return out


def spelled(items: list[str | int]) -> str:
    return "".join(SPECIALS[item] if isinstance(item, int) else item for item in items)


_text = st.one_of(
    st.sampled_from(["<|end_message|>", "<|end_", "<|", "|>", "</s>", "a", "", "zwölf", "👍🏽"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[str | int]:
    items: list[str | int] = []
    for _ in range(draw(st.integers(0, 6))):
        text = "".join(draw(st.lists(_text, max_size=4)))
        if text:
            items.append(text)
        if draw(st.booleans()):
            items.append(draw(st.sampled_from(sorted(SPECIALS))))
    return joined([Piece(i if isinstance(i, int) else None, str(i)) for i in items])


@UNHURRIED
@given(transcripts(), st.data())
def test_any_split_and_any_lag_finds_the_specials(items: list[str | int], data: st.DataObject):
    """Text never runs ahead of ids, but may come any number of steps late."""
    ids, text = ids_of(items), spelled(items)
    offsets = [len(spelled(prefix)) for prefix in _prefixes(items)]
    stream, out, sent, at = TokenText(decode, SPECIALS), [], 0, 0
    while at < len(ids):
        end = min(at + data.draw(st.integers(1, 5)), len(ids))
        upto = data.draw(st.integers(sent, offsets[end])) if end < len(ids) else len(text)
        out += stream.feed(text[sent:upto], ids[at:end])
        sent, at = upto, end
    out += stream.finish()
    assert joined(out) == items


def _prefixes(items: list[str | int]) -> list[list[str | int]]:
    """What is spelled by the first n ids; half a character spells nothing yet."""
    prefixes: list[list[str | int]] = [[]]
    before: list[str | int] = []
    for item in items:
        if isinstance(item, int):
            before = [*before, item]
            prefixes.append(before)
            continue
        raw = item.encode()
        for size in range(1, len(raw) + 1):
            prefixes.append([*before, raw[:size].decode(errors="ignore")])
        before = [*before, item]
    return prefixes


@UNHURRIED
@given(transcripts())
def test_hidden_specials_are_found_by_their_ids(items: list[str | int]):
    """`skip_special_tokens=True`: the text shows none of them."""
    stream, out = TokenText(decode, SPECIALS), []
    for item in items:
        out += stream.feed("" if isinstance(item, int) else item, ids_of([item]))
    out += stream.finish()
    # A look-alike in the place of a hidden name cannot be told from a shown one.
    if not any(isinstance(item, str) and "<" in item[:3] for item in items):
        assert joined(out) == items


def test_a_special_goes_out_as_soon_as_its_name_is_there():
    stream = TokenText(decode, SPECIALS)
    assert stream.feed("hi<|end_mess", [*b"hi", 1000]) == [Piece(None, "hi")]
    assert stream.feed("age|>", []) == [Piece(1000, "<|end_message|>")]


def test_text_without_specials_is_not_held():
    stream = TokenText(decode, SPECIALS)
    assert stream.feed("a <|end_", list(b"a <|end_")) == [Piece(None, "a <|end_")]


def test_a_stop_token_without_text_still_ends_the_answer():
    stream = TokenText(decode, SPECIALS)
    assert joined(stream.feed("hi", [*b"hi", 1000])) == ["hi"]
    assert stream.finish() == [Piece(1000, "<|end_message|>")]


@pytest.mark.parametrize("shown", ["the list", "the list<|end"])
def test_a_stop_string_drops_the_ids_behind_it(shown: str):
    """A stop string cut the text inside the run, or inside the marker's name."""
    stream = TokenText(decode, SPECIALS)
    out = stream.feed(shown, [*b"the list", 1000, *b"gone", 1001])
    out += stream.finish()
    assert joined(out)[0] == "the list"
    assert "gone" not in spelled([item for item in joined(out) if isinstance(item, str)])
    assert 1001 not in joined(out)


def test_a_decoder_that_does_not_join_is_corrected_by_the_name():
    """SentencePiece drops the space before a first word: the run seems one character short."""
    stream = TokenText(lambda ids: decode(ids).lstrip(), SPECIALS)
    out = stream.feed(" word<|end_message|>", [*b" word", 1000])
    assert joined(out + stream.finish()) == [" word", 1000]
