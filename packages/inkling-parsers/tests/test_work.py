"""Linear work, counted instead of timed: characters that the package's functions hold in hand.

Each Python function that returns is charged for the text in its arguments and local variables. A
reader that goes back over what it has read, whoever does the reading, is handed it again and again.
"""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from inkling_parsers import StreamParser

OPENING = '<|content_invoke_tool_json|>{"name":"f","args":'
BODIES = {
    "thinking": ("<|content_thinking|>", "plain words "),
    "text": ("<|content_text|>", "a < b "),
    "string": (OPENING + '{"s":"', "plain words "),
    "escapes": (OPENING + '{"s":"', "\\n\\u00e9 "),
    "items": (OPENING + '{"s":["', 'a","b","'),
    "objects": (OPENING + '{"s":[', '{"id":12,"ok":true},'),
    "entities": (OPENING + '{"s":"', "x &quot; "),
    "held-string": (OPENING + '"', "{ plain words "),
    "before-the-name": ('<|content_invoke_tool_json|>{"args":{"s":"', "plain words "),
    "skipped-member": ('<|content_invoke_tool_json|>{"id":"', "plain words "),
    "refused": ("<|content_invoke_tool_json|>nothing", " plain words"),
    "no-json": (OPENING + "{'", "plain words "),
}


def work(opening: str, body: str, deltas: int) -> int:
    """Characters in hand while `deltas` deltas of four characters are fed."""
    text = body * (1 + 4 * deltas // len(body))
    parser = StreamParser()
    parser.feed(opening)
    charged = 0

    def charge(frame: FrameType, event: str, argument: object) -> None:
        nonlocal charged
        if event == "return":
            charged += sum(len(held) for held in frame.f_locals.values() if type(held) is str)

    before = sys.getprofile()
    sys.setprofile(charge)
    try:
        for at in range(0, 4 * deltas, 4):
            parser.feed(text[at : at + 4])
    finally:
        sys.setprofile(before)
    return charged


@pytest.mark.parametrize("name", BODIES)
def test_twice_the_tokens_are_twice_the_work(name: str) -> None:
    once, twice = (work(*BODIES[name], deltas) for deltas in (400, 800))
    assert once >= 4 * 400, "not even the input was counted"
    assert twice <= 2.2 * once, f"twice the tokens took {twice / once:.1f} times the work"
