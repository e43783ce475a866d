"""Sizes of one dimension, as few as the allowed padding leaves.

    a value n with  p < n <= s  is padded from n to s; the worst is n = p + 1:
        s / (p + 1) <= 1 + padding        so the next size below s is  p >= s / (1 + padding) - 1

From the largest size downwards each next one is the smallest multiple of the unit that holds the
bound; no list with fewer sizes does.
"""

from __future__ import annotations


def sizes(smallest: int, largest: int, padding_percent: int, unit: int = 1) -> list[int]:
    """Ascending sizes from `smallest` (or less, where `largest` is) to `largest`.

    Values up to the first size are padded to it, whatever the percentage. Every size but the first
    and the last is a multiple of `unit`.
    Raises ValueError where the unit is too coarse for the percentage at this size.
    """
    found = [largest]
    while found[-1] > smallest:
        size = found[-1]
        bound = -(-100 * size // (100 + padding_percent)) - 1
        below = max(-(-bound // unit) * unit, smallest)
        if below >= size:
            raise ValueError(
                f"no multiple of {unit} below {size} keeps the padding within {padding_percent} %: "
                f"allow more than that, or start at a size of {size} or above"
            )
        found.append(below)
    return found[::-1]
