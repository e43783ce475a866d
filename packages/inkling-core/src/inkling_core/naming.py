"""Near names: what to suggest when a word is not one of those that are known.

Not an error class and not a check: callers own both. Used by every place that refuses a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def near_name(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to `word`, or None when nothing is close."""
    names = list(known)
    folded = {name.lower(): name for name in names}
    matches = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """`did you mean 'port'?`, or `known: a, b, c` when nothing is close."""
    names = sorted(set(known))
    match = near_name(word, names)
    return f"did you mean {match!r}?" if match else f"known: {', '.join(names)}"
