"""What is wrong with a configuration: every fault found, each with key, value and remedy.

It only carries the findings. `validate` and `read` decide what a fault is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One fault. `key` is dotted (`text_config.head_dim`), `remedy` says what to change."""

    key: str
    value: Any
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key} = {_short(self.value)}: {self.message}; {self.remedy}"


class ConfigError(ValueError):
    """A configuration that cannot be served. `problems` holds all of them, not only the first."""

    def __init__(self, problems: Iterable[Problem], source: str = "configuration") -> None:
        self.problems = tuple(problems)
        self.source = source
        lines = [f"{source}: {len(self.problems)} problem(s)"]
        lines += [f"  - {problem}" for problem in self.problems]
        super().__init__("\n".join(lines))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
