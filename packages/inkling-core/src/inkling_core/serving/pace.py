"""When a long prompt may have its next step while others wait for tokens: arithmetic on durations.

    a step with a part of a long prompt took t     ->  owed = owed + t / share
    a step without one took t                      ->  owed = max(0, owed - t)
    a long prompt may have a step                  <=>  owed = 0

So each second of long prefill is paid for by 1 / share seconds of steps without it, and a stream
keeps at least 1 / (1 + share) of its rate however slow a chunk is: 2/3 of it at 0.5. Seconds, not
tokens, because the cost of a chunk grows with its context and no count of tokens fits both ends of
a prompt of 250,000 tokens.

What it is not: the scheduler (long_prefill.py, which also says what "long" is) or a clock:
durations are handed in, so tests count in made-up ones.
"""

from __future__ import annotations


class Pace:
    """The account of one engine."""

    def __init__(self, share: float) -> None:
        """share: seconds of long prefill per second of steps without it, above 0."""
        self.share = share
        self.owed = 0.0

    def took(self, seconds: float, is_long: bool) -> None:
        """A step is done; is_long: it held a part of a long prompt."""
        self.owed = self.owed + seconds / self.share if is_long else max(0.0, self.owed - seconds)

    def is_due(self) -> bool:
        """Whether a long prompt may have a part of the next step."""
        return self.owed <= 0

    def forgive(self) -> None:
        """Nobody is there to be paid."""
        self.owed = 0.0
