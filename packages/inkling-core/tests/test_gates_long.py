"""The long tier's judging, without a server: each gate has to be able to say no.

The gates meet a real server in `serving/test_serving_nano.py`. The client here is scripted: it
answers facts out of the prompt itself, and makes the one mistake that a case names.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from inkling_core.cli.settings import GatesSettings
from inkling_core.gates import long_checks
from inkling_core.gates.client import Refusal, Reply
from inkling_core.gates.long_prefill import Figures
from inkling_core.gates.run import TIERS, GateReport
from inkling_core.gates.verdict import Request, Target, request_of
from inkling_core.nano import tasks
from inkling_core.nano.conversation import Answer

HITS, PREEMPTIONS = "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"


class Scripted:
    """A server of one byte per token that finds facts by reading, and its faults."""

    def __init__(self, longest: int = 8192, **faults: bool) -> None:
        self.longest, self.faults, self.asked = longest, faults, 0
        self.seen: set[str] = set()
        self.metrics = {HITS: 0.0, PREEMPTIONS: 0.0}

    def max_model_len(self) -> int:
        return self.longest

    def metric(self, name: str) -> float:
        return self.metrics[name]

    def chat(self, messages, **options) -> Reply | Refusal:
        self.asked += 1
        text = messages[0]["content"]
        if self.faults.get("hang"):
            return Refusal(408, "no answer within timeout=5 s")
        if text[:500] in self.seen and not self.faults.get("evicted"):
            self.metrics[HITS] += len(text)
        self.seen.add(text[:500])
        self.metrics[PREEMPTIONS] += bool(self.faults.get("preempts"))
        return Reply("", self.answer(text), (), "stop", -1.0, 5, len(text) + 20)

    def answer(self, text: str) -> str:
        asked = re.search(r"(code|list) of (\w+)\?$", text)
        if asked is None:
            return "19"
        kind, key = asked.groups()
        found = re.search(rf"the {kind} of {key} is ([\w ]+)\.", text)
        assert found is not None
        if self.faults.get("forgets_the_far_end") and found.start() < len(text) / 4:
            return "0000"
        return found[1] if kind == "code" or not self.faults.get("drops") else found[1][:-1]


def run(gate: str, **faults: bool) -> GateReport:
    target = Target(Scripted(**faults), None, is_nano=True, chunk=512)  # type: ignore[arg-type]  # scripted
    return GateReport(gate, tuple(long_checks.LONG_GATES[gate](target)), 0.0)


@pytest.mark.parametrize("gate", ["long_needles", "far_copy", "residents"])
def test_a_faultless_server_passes(gate):
    report = run(gate)
    assert report.passed, report.findings


@pytest.mark.parametrize(
    ("gate", "fault"),
    [
        ("long_needles", "forgets_the_far_end"),
        ("long_needles", "hang"),
        ("far_copy", "forgets_the_far_end"),
        ("far_copy", "drops"),
        ("residents", "evicted"),
        ("residents", "preempts"),
    ],
)
def test_a_fault_fails_the_gate(gate, fault):
    if fault == "hang":
        with pytest.raises(RuntimeError, match="no answer within timeout"):
            run(gate, hang=True)
        return
    report = run(gate, **{fault: True})
    assert not report.passed
    assert any(not finding.ok for finding in report.findings)


def test_lengths_follow_the_served_context():
    target = Target(Scripted(32_768), None, is_nano=True, chunk=512)  # type: ignore[arg-type]  # scripted
    lengths = long_checks.Lengths.of(target)
    assert lengths.characters == 1.0
    assert lengths.tokens(250_000) == 31_250 and lengths.tokens(long_checks.FULL) == 32_768


SUM = request_of(tasks.cases("sum", count=1)[0])
RIGHT = Reply("", SUM.answer.content if SUM.answer else "", (), "stop")
GOOD = Figures(0.7, (0.1, 0.2), 10.0, (RIGHT, RIGHT, RIGHT), ((1,),))


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        ({}, True),
        ({"kept": 0.59}, False),
        ({"waits": (0.1, 9.0)}, False),
        ({"answers": (RIGHT, RIGHT, replace(RIGHT, content="no"))}, False),
    ],
    ids=["good", "streams-stall", "short-waits", "wrong-answer"],
)
def test_streams_beside_a_long_prompt_are_judged_on_all_three(change, ok):
    target = Target(Scripted(), None, is_nano=True, chunk=512)  # type: ignore[arg-type]  # scripted
    found = list(long_checks.verdict(replace(GOOD, **change), target, [SUM] * 3))
    assert all(finding.ok for finding in found) is ok


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_the_soak_compares_every_repeat_with_the_first(drift):
    cases = {
        str(case.messages): case.answer
        for kind in ("needle", "list", "copy", "sum", "tool_thinking")
        for case in tasks.cases(kind, count=4, seed=long_checks.SEED)
    }

    class Drifting(Scripted):
        def chat(self, messages, **options) -> Reply:
            self.asked += 1
            answer: Answer = cases[str(tuple(messages))]
            calls = ()
            if answer.tool_call:
                call = answer.message()["tool_calls"][0]["function"]
                calls = ((call["name"], call["arguments"]),)
            logprob = -1.0 - drift * (self.asked > 150)
            return Reply(answer.reasoning, answer.content, calls, "stop", logprob, 5, 250)

    target = Target(Drifting(), None, is_nano=True, chunk=512)  # type: ignore[arg-type]  # scripted
    found = list(long_checks.soak(target))
    assert len(found) == long_checks.SOAK
    assert all(finding.ok for finding in found) is (drift == 0)


def test_plain_words_for_other_models():
    target = Target(Scripted(), None, is_nano=False, chunk=512)  # type: ignore[arg-type]  # scripted
    request = long_checks.asking(target, "text", "kola", "1234")
    assert isinstance(request, Request)
    assert request.messages[0]["content"].endswith("exactly as it was told.")


def test_the_tiers_and_their_time_limits():
    assert GatesSettings().seconds() == 120 and GatesSettings(tier="long").seconds() == 1800
    assert GatesSettings(tier="long", timeout=7).seconds() == 7
    assert not TIERS["core"].keys() & TIERS["long"].keys()
    with pytest.raises(ValueError, match=r"tier='lon' must be one of core, long; .*long"):
        GatesSettings(tier="lon")
