"""Prompts that the nano model was trained for, with their right answers as token ids.

What it is: held-out cases of inkling_core.nano.tasks. Inside its tasks the model is sure of every
token, so bfloat16 cannot turn an answer; on random ids it is not, and near-ties say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from runs import Batch

from inkling_core.embedded import EMBEDDED
from inkling_core.generate_text import Text
from inkling_core.nano import tasks
from inkling_core.nano.eval import Exam, exam

CASES = (
    ("sum", 128),
    ("needle", 128),
    ("copy", 160),
    ("needle", 256),
    ("tool", 256),
    ("sum_thinking", 300),
    ("list", 384),
    ("needle", 512),
    ("needle_thinking", 640),
    ("tool", 780),
)


def exams(asked: Sequence[tuple[str, int]] = CASES, seed: int = 0) -> list[Exam]:
    """One case per (task, longest prompt in tokens)."""
    text = Text.from_checkpoint(EMBEDDED)
    return [
        exam(tasks.cases(task, count=1, context_tokens=size, seed=seed + at)[0], text)
        for at, (task, size) in enumerate(asked)
    ]


def batch(of: Sequence[Exam]) -> Batch:
    """As many tokens as each right answer has."""
    return Batch([one.prompt for one in of], [len(one.answer) for one in of])


def within(of: Sequence[Exam]) -> Batch:
    """Each prompt with a beginning of its right answer, whatever its length, and one token more:
    a prefill chooses that token, where it would be a decode step."""
    prompts = [[*one.prompt, *one.answer[:given]] for one in of for given in range(len(one.answer))]
    return Batch(prompts, [1] * len(prompts))


def first_turns(of: Sequence[Exam]) -> list[Exam]:
    """The same conversations up to their first answer."""
    text = Text.from_checkpoint(EMBEDDED)
    opened = []
    for one in of:
        question, answer = one.case.messages[:2]
        case = tasks.Case(
            one.case.task, (question,), one.case.tools, one.case.effort, _answer(answer)
        )
        opened.append(exam(case, text))
    return opened


def _answer(message: dict) -> tasks.Answer:
    return tasks.Answer(content=message["content"])


def right(of: Sequence[Exam], tokens: Sequence[Sequence[int]]) -> int:
    """How many answers are right to the last token."""
    return sum(list(a) == list(one.answer) for one, a in zip(of, tokens, strict=True))
