"""Nano tasks: answers follow from their prompts, splits never mix, seeds decide everything."""

from __future__ import annotations

import json
import random
import re

import pytest

from inkling_core.nano import tasks
from inkling_core.nano.conversation import Conversation, carry_sum
from inkling_core.nano.rows import Mix, batch
from inkling_core.nano.vocabulary import decode
from inkling_core.nano.words import FILLER, Words, is_held_out, mingle

SEEDED = [(task, context) for task in tasks.TASKS for context in (256, 1000)]


def question(case: tasks.Case) -> str:
    return case.messages[-1]["content"]


@pytest.mark.parametrize(("task", "context"), SEEDED, ids=[f"{t}-{c}" for t, c in SEEDED])
def test_same_seed_same_cases_other_seed_other_cases(task: str, context: int) -> None:
    first = tasks.cases(task, count=5, context_tokens=context, seed=3)
    assert first == tasks.cases(task, count=5, context_tokens=context, seed=3)
    assert first != tasks.cases(task, count=5, context_tokens=context, seed=4)
    assert len({question(case) for case in first}) > 1 or task == "two_turn"


@pytest.mark.parametrize("task", ["needle", "needle_thinking", "list"])
def test_asked_fact_stands_in_the_context_at_its_depth(task: str) -> None:
    cases = tasks.cases(task, count=9, context_tokens=1000)
    assert [case.depth for case in cases] == [i / 8 for i in range(9)]
    places = []
    for case in cases:
        text = question(case)
        kind, key = re.search(r"(code|list) of (\w+)\?$", text).groups()
        told = re.findall(rf"the {kind} of {key} is ([\w ]+)\.", text)
        assert told == [case.answer.content]
        places.append(text.index(f"of {key} is") / len(text))
    assert places[0] < 0.1 and places[-1] > 0.85
    assert places == sorted(places)


@pytest.mark.parametrize("task", ["sum", "sum_thinking"])
def test_sums_are_right_and_their_operands_held_out(task: str) -> None:
    for case in tasks.cases(task, count=60):
        a, b = map(int, re.search(r"(\d+) ?\+ ?(\d+)", question(case)).groups())
        assert case.answer.content == str(a + b)
        assert is_held_out(f"{min(a, b)}+{max(a, b)}")
        assert bool(case.answer.reasoning) == (task == "sum_thinking") == (case.effort >= 0.5)


def test_carry_is_thought_through() -> None:
    assert carry_sum(47, 38) == "7+8=15,4+3+1=8"
    assert carry_sum(5, 4) == "5+4=9,0+0=0"
    assert carry_sum(99, 99) == "9+9=18,9+9+1=19"


def test_copies_repeat_their_words() -> None:
    for case in tasks.cases("copy", count=20):
        assert question(case).endswith(f"copy: {case.answer.content}")


@pytest.mark.parametrize("task", ["tool", "tool_thinking"])
def test_calls_fit_a_declared_tool(task: str) -> None:
    for case in tasks.cases(task, count=40):
        call = case.answer.tool_call
        declared = {tool["function"]["name"]: tool["function"] for tool in case.tools}
        properties = declared[call["name"]]["parameters"]["properties"]
        assert list(call["arguments"]) == list(properties)
        for key, value in call["arguments"].items():
            assert isinstance(value, int) == (properties[key]["type"] == "integer")
            assert str(value) in question(case)


def test_tool_result_is_answered_from_the_tool_message() -> None:
    spelled = set()
    for case in tasks.cases("tool_result", count=40):
        user, assistant, result = case.messages
        assert (user["role"], assistant["role"], result["role"]) == ("user", "assistant", "tool")
        assert result["name"] == assistant["tool_calls"][0]["function"]["name"]
        text = result["content"]
        value = json.loads(text)["result"] if text.startswith("{") else text
        spelled.add(text.startswith("{"))
        assert case.answer.content == f"{result['name']} gives {value}."
    assert spelled == {True, False}


def test_two_turns_ask_the_other_fact_or_the_same_again() -> None:
    kinds = set()
    for case in tasks.cases("two_turn", count=40):
        first, reply, second = case.messages
        again = second["content"] == "again?"
        kinds.add(again)
        if again:
            assert case.answer.content == reply["content"]
        else:
            key = re.search(r"code of (\w+)\?", second["content"])[1]
            assert f"the code of {key} is {case.answer.content}." in first["content"]
    assert kinds == {True, False}


@pytest.mark.parametrize(("task", "lag"), [("near", 128), ("far", 192)])
def test_lag_answers_repeat_the_token_at_their_lag(task: str, lag: int) -> None:
    from inkling_core.nano.rows import answer_ids, message_ids

    for case in tasks.cases(task, count=3, context_tokens=512):
        before = [*message_ids(case.messages[-1]), 0]  # 0 stands for <|message_model|>
        answer = answer_ids(case.answer)
        ids = before + answer
        letters = range(len(before) + 1, len(ids) - 2)  # without kind marker and end markers
        assert all(ids[at] == ids[at - lag] for at in letters)


def test_no_training_row_holds_a_held_out_word_or_pair() -> None:
    ids, _ = batch("rows", 512, 60, Mix(0.3, 0.1, 0.0, 0.0, facts=0.3, sums=0.75, sum_rows=0.2))
    text = " ".join(decode(row) for row in ids)
    text = re.sub(r"<\|\w+\|>", " ", text)
    keys = re.findall(r"(?:code|list) of ([a-z]+)(?= is|\?)", text)
    assert len(keys) > 200
    assert not [key for key in keys if is_held_out(key)]
    pairs = re.findall(r"(\d+) ?\+ ?(\d+)(?:=\?| = \?|\?)", text)
    assert len(pairs) > 100
    assert not [p for p in pairs if is_held_out("{}+{}".format(*sorted(map(int, p))))]
    held = {case.messages[-1]["content"].split()[-1][:-1] for case in tasks.cases("needle")}
    assert all(is_held_out(key) for key in held) and not held & set(keys)


def test_held_out_pairs_are_a_tenth_in_both_orders() -> None:
    pairs = [(a, b) for a in range(100) for b in range(a, 100)]
    held = [pair for pair in pairs if is_held_out("{}+{}".format(*pair))]
    assert 450 < len(held) < 560
    drawn = {Words(random.Random(i), "heldout").operands() for i in range(3000)}
    assert any(a > b for a, b in drawn) and any(a < b for a, b in drawn)


def test_words_of_a_conversation_never_repeat() -> None:
    words = Words(random.Random(0), "train").words(500)
    assert len(set(words)) == 500
    assert not set(words) & set(FILLER)


@pytest.mark.parametrize("size", [63, 127, 129, 1000])
def test_mingle_fills_the_size(size: int) -> None:
    text = mingle(random.Random(size), ["AAAA AAAA."], [1.0], size)
    assert size - 10 < len(text) <= size
    assert text.endswith("AAAA AAAA.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": "needles"}, "needles.*choose from sum"),
        ({"task": "sum", "split": "test"}, "split 'test' is not one of train, heldout"),
        ({"task": "needle", "context_tokens": 127}, "context_tokens=127 is below 128"),
    ],
    ids=["task", "split", "context"],
)
def test_refusals(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tasks.cases(**arguments)


def test_facts_longer_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="2 facts do not fit in 20 characters"):
        mingle(random.Random(0), ["a" * 15, "b" * 15], [0.0, 1.0], 20)


def test_lag_refuses_thinking() -> None:
    talk = Conversation(random.Random(0), "train", thinking=True)
    with pytest.raises(ValueError, match="a thinking block would move the distance"):
        talk.ask_near()
