"""When a long prompt may have its next step while others wait for tokens: arithmetic on durations.

    a step with a part of a long prompt took t     ->  owed = owed + t / share
    a step without one took t                      ->  owed = max(0, owed - t)
    a long prompt may have a step                  <=>  owed = 0 and none of its steps is running

So each second of long prefill is paid for by 1 / share seconds of steps without it, and a stream
keeps at least 1 / (1 + share) of its rate however slow a chunk is: 2/3 of it at 0.5. Seconds, not
tokens, because the cost of a chunk grows with its context and no count of tokens fits both ends of
a prompt of 250,000 tokens.

What it is not: the scheduler (long_prefill.py, which also says what "long" is) or a clock: times
are handed in, so tests count in made-up ones.
"""

from __future__ import annotations

import math
from collections import deque


class Pace:
    """The account of one engine.

    Steps end in the order in which they began. Where the next is scheduled while one still runs
    (asynchronous scheduling), a step counts from the end of the one before it.
    """

    def __init__(self, share: float) -> None:
        """share: seconds of long prefill per second of steps without it, above 0."""
        self.share = share
        self.owed = 0.0
        self._running: deque[tuple[bool, float]] = deque()
        self._last_end = -math.inf

    def began(self, is_long: bool, now: float) -> None:
        """A step was handed to the workers; is_long: it holds a part of a long prompt."""
        self._running.append((is_long, now))

    def ended(self, now: float) -> None:
        """The oldest running step is done."""
        is_long, began = self._running.popleft()
        took = now - max(began, self._last_end)
        self._last_end = now
        self.owed = self.owed + took / self.share if is_long else max(0.0, self.owed - took)

    def is_due(self) -> bool:
        """Whether a long prompt may have a part of the next step."""
        return self.owed <= 0 and not any(is_long for is_long, _ in self._running)

    def is_idle(self) -> bool:
        """Whether no step is running."""
        return not self._running

    def forgive(self) -> None:
        """Nobody is there to be paid."""
        self.owed = 0.0
