"""Training rows are, id for id, what inkling_parsers renders, and ask for nothing else."""

from __future__ import annotations

import random

import pytest

from inkling_core.nano import rows, tasks
from inkling_core.nano import vocabulary as v
from inkling_core.nano.conversation import Conversation
from inkling_parsers.parser import parse
from inkling_parsers.render import render

MIX = rows.Mix(dense=0.4, repeat=0.1, lag=0.1, far=0.5)


def rendered_ids(messages: list[dict], tools, effort, generate: bool = True) -> list[int]:
    prompt = render(messages, tools, effort, add_generation_prompt=generate)
    return prompt.ids(v.encode, v.SPECIAL_IDS)


def row_ids(case: tasks.Case) -> list[int]:
    """The prompt of a case by the trainer's fast path."""
    ids = rows.header_ids(list(case.tools), "", case.effort)
    for message in case.messages:
        if message["role"] != "assistant":
            ids += rows.message_ids(message)
    return [*ids, v.MESSAGE_MODEL]


@pytest.mark.parametrize("task", sorted(set(tasks.TASKS) - {"tool_result", "two_turn"}))
def test_prompts_equal_the_rendered_ones(task: str) -> None:
    for case in tasks.cases(task, count=20):
        expected = rendered_ids(list(case.messages), case.tools, case.effort)
        assert row_ids(case) == expected


@pytest.mark.parametrize("task", tasks.TASKS)
def test_answers_equal_the_rendered_turn_and_parse_back(task: str) -> None:
    for case in tasks.cases(task, count=20):
        prompt = rendered_ids(list(case.messages), case.tools, case.effort)
        messages = [*case.messages, case.answer.message()]
        whole = rendered_ids(messages, case.tools, case.effort, generate=False)
        said = rows.answer_ids(case.answer)
        assert whole == prompt + said


@pytest.mark.parametrize("task", tasks.TASKS)
def test_answers_parse_to_what_the_case_expects(task: str) -> None:
    import json

    from inkling_parsers.markers import SpecialTokens

    special = SpecialTokens.from_vocab(v.SPECIAL_IDS)
    for case in tasks.cases(task, count=5):
        said = rows.answer_ids(case.answer)
        parsed = parse(said, special, decode=lambda ids: bytes(ids).decode())
        assert (parsed.reasoning or "") == case.answer.reasoning
        assert (parsed.content or "") == case.answer.content
        calls = [{"name": c.name, "arguments": json.loads(c.arguments)} for c in parsed.tool_calls]
        assert calls == ([case.answer.tool_call] if case.answer.tool_call else [])


@pytest.mark.parametrize("effort", [0.0, 0.1, 0.2, 0.7, 0.9, 0.99, None])
@pytest.mark.parametrize("system", ["", "zova ludi"])
@pytest.mark.parametrize("with_tools", [False, True])
def test_header_equals_the_rendered_one(effort, system: str, with_tools: bool) -> None:
    talk = Conversation(random.Random(1), "train", thinking=False)
    if with_tools:
        talk.declare_tools()
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": "hello"})
    ids = rows.header_ids(talk.tools, system, effort)
    ids += [*rows.message_ids(messages[-1]), v.MESSAGE_MODEL]
    assert ids == rendered_ids(messages, talk.tools or None, effort)


@pytest.mark.parametrize("length", [256, 512, 2048])
def test_rows_have_their_length_and_repeat_with_their_seed(length: int) -> None:
    ids, mask = rows.batch("seed", length, 5, MIX)
    assert [len(row) for row in ids] == [len(row) for row in mask] == [length] * 5
    assert (ids, mask) == rows.batch("seed", length, 5, MIX)
    assert ids != rows.batch("other", length, 5, MIX)[0]


def test_mask_covers_answers_and_nothing_else() -> None:
    ids, mask = rows.batch("mask", 512, 40, MIX)
    openers = {v.CONTENT_TEXT, v.CONTENT_THINKING}
    starts = 0
    for row, said in zip(ids, mask, strict=True):
        for at in range(1, len(row)):
            if said[at] and not said[at - 1]:  # an answer begins right after <|message_model|>
                assert row[at - 1] == v.MESSAGE_MODEL
                assert row[at] in openers or v.INVOKE_TOOL_JSON in row[at : at + 20]
                starts += 1
            if said[at - 1] and not said[at]:  # and ends with the end of sampling
                assert row[at - 1] == v.END_SAMPLING
        asked = (v.MESSAGE_USER, v.MESSAGE_TOOL, v.MESSAGE_SYSTEM, v.CONTENT_XML)
        assert not any(said[at] for at, token in enumerate(row) if token in asked)
    assert starts > 100


def test_every_kind_of_turn_is_trained() -> None:
    ids, mask = rows.batch("kinds", 2048, 16, MIX)
    text = "".join(v.decode(row) for row in ids)
    marks = ("again?", "copy: ", "near: ", "far: ", "hello", "<|message_tool|>", " gives ", "find ")
    for mark in marks:
        assert mark in text
    shown = "".join(
        v.decode([t for t, s in zip(r, m, strict=True) if s])
        for r, m in zip(ids, mask, strict=True)
    )
    assert "<|content_invoke_tool_json|>" in shown and "<|content_thinking|>" in shown


def test_effort_decides_thinking() -> None:
    ids, mask = rows.batch("effort", 1024, 30, rows.Mix(0.0, 0.0, 0.0, 0.0))
    for row, said in zip(ids, mask, strict=True):
        text = v.decode(row)
        thought = any(s and t == v.CONTENT_THINKING for t, s in zip(row, said, strict=True))
        high = any(f"level: {level}" in text for level in ("0.7", "0.9", "0.99"))
        assert thought == high
