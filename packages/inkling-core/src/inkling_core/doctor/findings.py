"""One line of what the doctor says. Not a check: those make these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "fault", "not examined"]

NOT_FOUND = "not found"
REFUSAL = re.compile(r"(.*)[:;] (.+)", re.DOTALL)  # the last colon or semicolon parts the remedy


@dataclass(frozen=True)
class Finding:
    """What was looked at and what became of it.

    part: group of the table (versions, device, checkpoint, memory, port, settings).
    what: the thing itself, for example a package's name.
    state: `fault` is why a server would not start or would answer wrongly; `warning` is what nobody
        has shown to work; `not examined` needs something that is absent.
    found: what is there, in numbers.
    remedy: what to do; every fault and warning has one (ValueError without).
    """

    part: str
    what: str
    state: State
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.state in ("fault", "warning") and not self.remedy:
            raise ValueError(f"{self.part}, {self.what}: a {self.state} says what to do about it")


def refused(part: str, what: str, reason: str) -> Finding:
    """A fault from the text of a refusal, which ends in its way out: `value, limit: way out`."""
    parts = REFUSAL.fullmatch(reason)
    found, remedy = parts.groups() if parts else (reason, "see what was found")
    return Finding(part, what, "fault", found, remedy)
