"""What is wrong with a checkpoint or with the way it is to be cut: all of it in one error."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN = 60  # lines of one message; `problems` holds every one


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded. `problems` lists everything found, in full."""

    def __init__(self, directory: object, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(_message(f"checkpoint {directory}", self.problems))


class ShardingError(ValueError):
    """Sizes that do not divide over the tensor-parallel ranks. `problems` lists all of them."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(_message("tensor parallelism", self.problems))


def _message(subject: str, problems: tuple[str, ...]) -> str:
    lines = [f"{subject}: {len(problems)} problem(s)"]
    lines += [f"  - {problem}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"  ... and {len(problems) - SHOWN} more (see .problems)")
    return "\n".join(lines)
