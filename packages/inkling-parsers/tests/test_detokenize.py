"""Text of ids is the text of the whole run, whatever the pieces: by bytes and by strings."""

from __future__ import annotations

import pytest

from inkling_parsers.detokenize import Detokenizer

TEXT = "aé€\U0001f680 \ufffd\ufffd b\ufffd\ufffd" + "\ufffd" * 40 + "end €"
BROKEN = b"a\xf0\x9f\x98b\xe2\x82\xffc\xf0\x9f"


def as_bytes(ids: list[int]) -> bytes:
    return bytes(ids)


def as_text(ids: list[int]) -> str:
    return bytes(ids).decode("utf-8", "replace")


@pytest.mark.parametrize("decode", [as_bytes, as_text])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("raw", [TEXT.encode(), BROKEN], ids=["valid", "broken"])
def test_pieces_join_to_the_whole(decode, size, raw):
    detokenizer = Detokenizer(decode)
    pieces = [
        detokenizer.text(list(raw[at : at + size]), final=at + size >= len(raw))
        for at in range(0, len(raw), size)
    ]
    assert "".join(pieces) == raw.decode("utf-8", "replace")
    assert not detokenizer.dirty


def test_real_replacement_characters_are_not_held_forever():
    detokenizer = Detokenizer(as_text)
    out = "".join(detokenizer.text([byte], final=False) for byte in ("\ufffd" * 100).encode())
    assert len(out) > 90


def test_no_half_character_comes_out():
    detokenizer = Detokenizer(as_text)
    for byte in "€\U0001f680".encode():
        assert "\ufffd" not in detokenizer.text([byte], final=False)
