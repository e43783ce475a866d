"""The ways in which `check` cuts an answer into deltas, and a vocabulary to cut it by.

Not a tokenizer: `ByteVocabulary` has the special tokens and one ordinary id per byte, so that
token by token also means byte by byte, through the middle of characters.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from inkling_parsers.markers import Marker, SpecialTokens

RANDOM_SPLITS = 6

Segments = Sequence[Sequence[str]]


class ByteVocabulary:
    """Special tokens by name from id 0 on, and byte b as id `FIRST_BYTE + b`."""

    FIRST_BYTE = 1000

    def __init__(self) -> None:
        named = [marker.value for marker in Marker if marker is not Marker.UNNAMED]
        self.special_ids = {name: id_ for id_, name in enumerate(named)}
        self.tokens = SpecialTokens.from_vocab(self.special_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text."""
        return [self.FIRST_BYTE + byte for byte in text.encode("utf-8", "surrogatepass")]

    def decode(self, ids: list[int]) -> bytes:
        """The bytes behind ordinary ids."""
        return bytes(id_ - self.FIRST_BYTE for id_ in ids)

    def ids(self, segments: Segments) -> list[int]:
        """Ids of `[kind, text]` segments: kind "s" is one special token, "t" ordinary text."""
        ids: list[int] = []
        for kind, text in segments:
            ids += [self.special_ids[text]] if kind == "s" else self.encode(text)
        return ids


def prompt_segments(tail: Iterable[str]) -> list[list[str]]:
    """Segments of a row's `prompt_tail`, where strings that spell a marker are markers."""
    names = {marker.value for marker in Marker}
    return [["s" if text in names else "t", text] for text in tail]


def id_splits(ids: list[int], seed: str) -> Iterator[tuple[str, list[list[int]]]]:
    """Whole first, then token by token, then random cuts."""
    yield "ids, whole", [ids]
    yield "ids, token by token", [[id_] for id_ in ids]
    for number, cuts in enumerate(_random_cuts(len(ids), seed)):
        yield f"ids, random split {number}", [ids[a:b] for a, b in cuts]


def text_splits(text: str, seed: str) -> Iterator[tuple[str, list[str]]]:
    """Whole first, then character by character, then random cuts."""
    yield "text, whole", [text]
    yield "text, character by character", list(text)
    for number, cuts in enumerate(_random_cuts(len(text), seed)):
        yield f"text, random split {number}", [text[a:b] for a, b in cuts]


def _random_cuts(size: int, seed: str) -> Iterator[list[tuple[int, int]]]:
    for number in range(RANDOM_SPLITS):
        source = random.Random(f"{seed}/{number}")
        inner = sorted(source.randint(0, size) for _ in range(source.randint(1, 12)))
        edges = [0, *inner, size]
        yield list(pairwise(edges))
