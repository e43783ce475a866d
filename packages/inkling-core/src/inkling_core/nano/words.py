"""Seeded text material of the nano tasks: words, codes, filler, and the held-out rule.

What it is: the only place that draws random words and numbers. Words are consonant-vowel strings
("kola", "tepuri"), never a fixed list, so that a model cannot learn them by heart.
What it is not: the questions asked about them (tasks.py) or the rows trained on (rows.py).

Held-out rule: a word, or an unordered pair of operands, belongs to the held-out split when the
CRC-32 of its spelling is divisible by 10. Training draws never return one, held-out draws return
nothing else, so no seed can mix the two.
"""

from __future__ import annotations

import random
import zlib

CONSONANTS = "bdfghjklmnprstvz"
VOWELS = "aeiou"
HELD_OUT_ONE_IN = 10
SPLITS = ("train", "heldout")
FILLER_TEXT = """
river stone light field paper under cloud north green table winter garden window silver
bridge quiet morning candle forest harbor ladder mirror orange pencil rabbit saddle timber
valley wagon yellow anchor basket copper desert engine feather glass hammer island jacket
kettle lemon meadow needle ocean pepper quartz ribbon spoon tunnel velvet walnut branch
pocket summer
"""
FILLER = tuple(FILLER_TEXT.split())


def is_held_out(spelling: str) -> bool:
    """True when `spelling` belongs to the held-out split."""
    return zlib.crc32(spelling.encode()) % HELD_OUT_ONE_IN == 0


class Words:
    """Draws words and operand pairs of one split, never the same word twice.

    One object serves one conversation: keys repeated inside it would make questions ambiguous.
    """

    def __init__(self, rng: random.Random, split: str) -> None:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is not one of {', '.join(SPLITS)}")
        self.rng = rng
        self.held_out = split == "heldout"
        self.used: set[str] = set()

    def word(self) -> str:
        """One new word of 4 to 6 letters."""
        rng = self.rng
        while True:
            length = rng.randint(4, 6)
            pairs = [rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(3)]
            word = "".join(pairs)[:length]
            if word not in self.used and is_held_out(word) == self.held_out:
                self.used.add(word)
                return word

    def words(self, count: int) -> list[str]:
        """`count` new words."""
        return [self.word() for _ in range(count)]

    def operands(self) -> tuple[int, int]:
        """An ordered pair of numbers below 100 whose unordered pair belongs to the split."""
        while True:
            a, b = self.rng.randrange(100), self.rng.randrange(100)
            if is_held_out(f"{min(a, b)}+{max(a, b)}") == self.held_out:
                return a, b

    def code(self) -> str:
        """Four decimal digits."""
        return f"{self.rng.randrange(10000):04d}"


def mingle(rng: random.Random, facts: list[str], depths: list[float], size: int) -> str:
    """Facts set into filler words: at most `size` characters, fewer only by part of a word.

    depths: one number in [0, 1] a fact, the share of the filler that comes before it.
    Raises ValueError when the facts alone are longer than `size`.
    """
    room = size - sum(len(fact) + 1 for fact in facts)
    if facts and room < -1:
        raise ValueError(f"{len(facts)} facts do not fit in {size} characters: raise the context")
    filler: list[str] = []
    while True:
        word = rng.choice(FILLER)
        room -= len(word) + 1
        if room < -1:
            break
        filler.append(word)
    pieces: list[str] = []
    done = 0
    for depth, fact in sorted(zip(depths, facts, strict=True)):
        upto = round(depth * len(filler))
        pieces += [*filler[done:upto], fact]
        done = upto
    return " ".join(pieces + filler[done:])
