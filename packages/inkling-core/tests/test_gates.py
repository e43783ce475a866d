"""The judging of the gates, without a server: what counts as held, as failed and as not asked.

The gates themselves meet a real server in `serving/test_serving_nano.py`.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from inkling_core.embedded import EMBEDDED
from inkling_core.gates.checks import cut_fact
from inkling_core.gates.client import Refusal, Reply
from inkling_core.gates.limits import refused
from inkling_core.gates.reference import Reference
from inkling_core.gates.run import GateReport, _print, _summary
from inkling_core.gates.verdict import LOGPROB_TOLERANCE, Finding, same_answer

HELD, FAILED = Finding("a", True), Finding("b", False, "why")
LEFT_OUT = Finding("c", True, "max_model_len is 512", left_out=True)


def reply(content: str, logprob: float | None) -> Reply:
    return Reply("", content, (), "stop", logprob, 3)


@pytest.mark.parametrize(
    ("findings", "passed"),
    [
        ((HELD,), True),
        ((HELD, LEFT_OUT), True),
        ((HELD, FAILED), False),
        ((LEFT_OUT,), False),
        ((), False),
    ],
    ids=["held", "partly", "failed", "nothing-asked", "empty"],
)
def test_a_gate_that_asked_nothing_has_not_passed(findings, passed):
    assert GateReport("g", findings, 1.0).passed is passed


def test_what_was_left_out_is_printed_and_not_counted_as_held():
    out = io.StringIO()
    console = Console(file=out, width=100)
    report = GateReport("needles", (HELD, HELD, LEFT_OUT), 1.0)
    _print(console, report)
    console.print(_summary([report]))
    assert "pass needles: 2 of 2" in out.getvalue()
    assert "c: left out: max_model_len is 512" in out.getvalue()
    cells = [next(iter(column.cells)) for column in _summary([report]).columns]
    assert cells == ["needles", "2", "0", "1", "1.0"]


@pytest.mark.parametrize(
    ("other", "ok"),
    [
        (reply("19", -1.0), True),
        (reply("19", -1.0 - 0.9 * LOGPROB_TOLERANCE), True),
        (reply("19", -1.0 - 1.1 * LOGPROB_TOLERANCE), False),
        (reply("18", -1.0), False),
        (reply("19", None), False),
        (Refusal(500, "no"), False),
    ],
    ids=["equal", "near", "far", "text", "no-logprob", "refused"],
)
def test_cold_and_cached_answers_are_compared_with_each_other(other, ok):
    assert same_answer("x", reply("19", -1.0), other).ok is ok
    assert same_answer("x", other, reply("19", -1.0)).ok is ok


@pytest.mark.parametrize(
    ("answer", "ok"),
    [
        (Refusal(400, "the prompt has 5000 tokens, the limit is 4096 tokens"), True),
        (Refusal(400, "too long: the limit is 4096 tokens"), False),
        (Refusal(400, "the prompt has 5000 tokens, the limit is 40960 tokens"), False),
        (Refusal(500, "the prompt has 5000 tokens, the limit is 4096 tokens"), False),
        ({"choices": []}, False),
    ],
    ids=["both", "one-number", "other-number", "500", "answered"],
)
def test_a_refusal_names_what_was_sent_and_what_is_allowed(answer, ok):
    assert refused("x", answer, (r"\b4096\b", r"prompt \D*[1-9]\d* \D*tokens")).ok is ok


@pytest.mark.parametrize("edge", [256, 512])
@pytest.mark.parametrize("into", [1, 2, 3])
def test_the_chunk_edge_falls_inside_the_code(edge, into):
    reference = Reference.load(EMBEDDED)
    assert reference is not None
    request = cut_fact(reference, edge, into)
    assert request.answer is not None
    code = request.answer.content.encode()
    prompt = reference.prompt_ids(request.messages, (), request.effort)
    found = [at for at in range(len(prompt)) if prompt[at : at + len(code)] == list(code)]
    assert found == [edge - into]
