"""Special tokens are found by name, in any vocabulary."""

from __future__ import annotations

import pytest

from inkling_parsers.markers import (
    CLASSES,
    REQUIRED,
    Marker,
    MarkerClass,
    SpecialTokens,
    VocabularyError,
)

VOCAB = {marker.value: 7 * at for at, marker in enumerate(Marker) if marker is not Marker.UNNAMED}


def test_ids_come_from_the_vocabulary():
    tokens = SpecialTokens.from_vocab({**VOCAB, "the": 5000})
    assert tokens.ids[Marker.END_MESSAGE] == VOCAB["<|end_message|>"]
    assert 5000 not in tokens.markers
    ends = (VOCAB["<|content_model_end_sampling|>"], VOCAB["<|endoftext|>"])
    assert tokens.stop_ids == tuple(sorted(ends))


def test_the_published_spelling_of_xml():
    vocab = {name: id_ for name, id_ in VOCAB.items() if "xml" not in name}
    tokens = SpecialTokens.from_vocab({**vocab, "<|unused_200024|>": 200024})
    assert tokens.markers[200024] is Marker.CONTENT_XML
    assert tokens.ids[Marker.CONTENT_XML] == 200024


def test_unnamed_slots_and_listed_ids_are_special():
    tokens = SpecialTokens.from_vocab({**VOCAB, "<|unused_9|>": 900}, other_special_ids=[901])
    assert tokens.markers[900] is tokens.markers[901] is Marker.UNNAMED


def test_endoftext_is_optional():
    vocab = {name: id_ for name, id_ in VOCAB.items() if name != "<|endoftext|>"}
    tokens = SpecialTokens.from_vocab(vocab)
    assert tokens.stop_ids == (VOCAB["<|content_model_end_sampling|>"],)


@pytest.mark.parametrize("missing", REQUIRED)
def test_what_the_format_needs_is_named(missing):
    vocab = {name: id_ for name, id_ in VOCAB.items() if name != missing.value}
    with pytest.raises(VocabularyError, match=missing.value.strip("<|>")):
        SpecialTokens.from_vocab(vocab)


def test_classes_and_roles():
    assert set(CLASSES) == set(Marker)
    roles = {marker.role for marker, kind in CLASSES.items() if kind is MarkerClass.ROLE}
    assert roles == {"user", "model", "system", "tool"}
    assert Marker.CONTENT_TEXT.role is None
    assert f"{Marker.END_MESSAGE}" == "<|end_message|>"
