"""What the renderer says when it refuses: one exception type, the place and the reason.

This is not the parser's taxonomy (``errors`` of a model's output live with the grammar): these
errors are about what a *client* sent. Each one names the message by its index in the request and
the field inside it, so that a server can hand the text on as an HTTP 400.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_SHOWN = 80


class RenderError(ValueError):
    """A request that has no rendering.

    Attributes:
        message_index: index in ``messages``, or None where the fault is in ``tools`` or ``effort``.
        field: path below the message, such as ``tool_calls[0].function.name``; below the request
            where there is no message.
        reason: what is wrong and what would be right.
    """

    def __init__(self, message_index: int | None, field: str, reason: str) -> None:
        self.message_index = message_index
        self.field = field
        self.reason = reason
        head = field if message_index is None else f"messages[{message_index}]"
        if message_index is not None and field:
            head = f"{head}.{field}"
        super().__init__(f"{head}: {reason}")


class EffortError(RenderError):
    """A reasoning effort that is no known word and no number in range."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, "effort", reason)


@dataclass(frozen=True)
class Place:
    """Where in the request a value stands; makes the errors that point at it."""

    message_index: int | None = None
    field: str = ""

    def key(self, name: str) -> Place:
        """The member `name` of the object that stands here."""
        return Place(self.message_index, f"{self.field}.{name}" if self.field else name)

    def item(self, index: int) -> Place:
        """The element `index` of the list that stands here."""
        return Place(self.message_index, f"{self.field}[{index}]")

    def error(self, reason: str) -> RenderError:
        """The error to raise for the value that stands here."""
        return RenderError(self.message_index, self.field, reason)


def shown(value: object) -> str:
    """`value` as an error message quotes it: its repr, cut to a length that fits a log line."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
