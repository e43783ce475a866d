"""Random prompts whose lengths lie around the edges that go wrong: blocks, chunks, the window."""

from __future__ import annotations

import random

BLOCK = 128
EDGES = (1, 3, 6, 127, 128, 129, 141, 255, 257, 301)
LONG = (640, 777)  # beyond the local window of 512


def random_ids(length: int, vocabulary: int, seed: int) -> list[int]:
    """`length` ids, none of them among the first three (special in stock tokenizers)."""
    draw = random.Random(seed)
    return [draw.randrange(3, vocabulary) for _ in range(length)]


def of_lengths(lengths: tuple[int, ...], vocabulary: int, seed: int = 0) -> list[list[int]]:
    """One prompt per length, nothing shared."""
    return [random_ids(n, vocabulary, seed * 1000 + at) for at, n in enumerate(lengths)]


def sharing(prefix: int, tails: tuple[int, ...], vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Prompts that begin with the same `prefix` ids and go on with `tails` ids of their own."""
    start = random_ids(prefix, vocabulary, seed + 7)
    return [start + random_ids(n, vocabulary, seed * 1000 + 100 + n) for n in tails]
