"""The scored tasks of inkling-nano: seeded cases with their one right answer, in pure Python.

What it is: `cases(task, ...)`, used by `inkling eval`, by the serving gates and by load tests.
A case is what an OpenAI client sends (messages, tools, effort) and what must come back.
What it is not: the rendering to tokens (inkling_parsers.render), the scoring (eval.py).

Held-out cases use words and operand pairs that no training row contains (words.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from inkling_core.nano.conversation import Answer, Conversation, Turn
from inkling_core.nano.words import mingle

MAX_FACTS = 24
CHARACTERS_PER_FACT = 80
DEFAULT_CONTEXT = 256


@dataclass(frozen=True)
class Case:
    """One request and its right answer.

    messages, tools: as sent to /v1/chat/completions. effort: `reasoning_effort`, a number.
    depth: where in the context the asked fact stands, 0 to 1; None where no fact is asked.
    """

    task: str
    messages: tuple[dict, ...]
    tools: tuple[dict, ...]
    effort: float
    answer: Answer
    depth: float | None = None


def _filler(talk: Conversation, size: int) -> str:
    """Context before a question: filler with about one fact for each 80 characters."""
    if size <= 0:
        return ""
    count = min(size // CHARACTERS_PER_FACT, MAX_FACTS)
    return talk.context(size, [talk.rng.choice(("code", "list")) for _ in range(count)])


def _fact_case(kind: str) -> Callable[[Conversation, int, float], list[Turn]]:
    def build(talk: Conversation, size: int, depth: float) -> list[Turn]:
        others = max(0, min(size // CHARACTERS_PER_FACT, MAX_FACTS) - 1)
        kinds = [talk.rng.choice(("code", "list")) for _ in range(others)]
        facts = [talk.fact(kind), *(talk.fact(other) for other in kinds)]
        depths = [depth, *(talk.rng.random() for _ in kinds)]
        key = next(iter(talk.facts))
        return [talk.ask_fact(mingle(talk.rng, facts, depths, size), key)]

    return build


def _asked(method: str) -> Callable[[Conversation, int, float], list[Turn]]:
    def build(talk: Conversation, size: int, depth: float) -> list[Turn]:
        if method == "ask_tool":
            talk.declare_tools()
            size -= len(json.dumps(talk.tools))
        return [getattr(talk, method)(_filler(talk, size))]

    return build


def _tool_result(talk: Conversation, size: int, depth: float) -> list[Turn]:
    first = _asked("ask_tool")(talk, size - 60, depth)[0]
    assert first.answer.tool_call is not None
    return [first, talk.tool_result(first.answer.tool_call)]


def _two_turn(talk: Conversation, size: int, depth: float) -> list[Turn]:
    """Two facts in the first message: one asked at once, then the other or the same answer."""
    size = max(size - 60, 64)
    count = max(0, min(size // CHARACTERS_PER_FACT, MAX_FACTS) - 2)
    context = talk.context(size, ["code", "code", *(["list"] * count)])
    first_key, second_key = talk.rng.sample(list(talk.facts)[:2], 2)
    first = talk.ask_fact(context, first_key)
    if talk.rng.random() < 0.5:
        return [first, talk.ask_again(first.answer)]
    return [first, talk.ask_fact("", second_key)]


BUILDERS: dict[str, tuple[bool, int, Callable[[Conversation, int, float], list[Turn]]]] = {
    # task: (thinking, characters of its own question and of the format, builder)
    "sum": (False, 50, _asked("ask_sum")),
    "sum_thinking": (True, 50, _asked("ask_sum")),
    "needle": (False, 55, _fact_case("code")),
    "needle_thinking": (True, 55, _fact_case("code")),
    "list": (False, 55, _fact_case("list")),
    "copy": (False, 85, _asked("ask_copy")),
    "tool": (False, 70, _asked("ask_tool")),
    "tool_thinking": (True, 70, _asked("ask_tool")),
    "tool_result": (False, 100, _tool_result),
    "two_turn": (False, 60, _two_turn),
    "near": (False, 165, _asked("ask_near")),
    "far": (False, 230, _asked("ask_far")),
}
TASKS = tuple(BUILDERS)


def case(task: str, split: str, context_tokens: int, depth: float, seed: str) -> Case:
    """One case. `seed` is a text, so that neighbouring numbers give unrelated cases."""
    thinking, own, build = BUILDERS[task]
    rng = random.Random(seed)
    effort = 0.9 if thinking else 0.0
    talk = Conversation(rng, split, thinking)
    *earlier, last = build(talk, context_tokens - own, depth)
    messages: list[dict] = []
    for turn in earlier:
        messages += [*turn.messages, turn.answer.message()]
    messages += last.messages
    asks_fact = task.split("_")[0] in ("needle", "list")
    return Case(
        task, tuple(messages), tuple(talk.tools), effort, last.answer, depth if asks_fact else None
    )


def cases(
    task: str,
    split: str = "heldout",
    count: int = 100,
    context_tokens: int = DEFAULT_CONTEXT,
    seed: int = 0,
) -> list[Case]:
    """`count` cases of `task` whose prompts are at most about `context_tokens` long.

    Facts asked for are spread evenly from depth 0 to 1. Raises ValueError on an unknown task, on an
    unknown split, and where the context cannot hold the question.
    """
    if task not in BUILDERS:
        raise ValueError(f"task {task!r} is unknown: choose from {', '.join(TASKS)}")
    if context_tokens < 128:
        raise ValueError(f"context_tokens={context_tokens} is below 128, the shortest supported")
    last = max(count - 1, 1)
    return [
        case(task, split, context_tokens, i / last, f"{task}/{split}/{context_tokens}/{seed}/{i}")
        for i in range(count)
    ]
