"""The embedded model served: held-out cases of every task, token for token as the dense reference.

Cases and judging are `inkling_core.nano.eval`'s. What is compared is not the right answer (eval
does that) but the server with the reference: each token of each served answer must be the float32
decoder's own greedy choice. INKLING_HELDOUT_CASES sets the number of cases a task; 300 is the full
count, and takes tens of minutes of two cores.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from inkling_core.checkpoint import load_decoder
from inkling_core.cli.settings import GatesSettings
from inkling_core.embedded import EMBEDDED
from inkling_core.gates import run as gates
from inkling_core.gates.checks import GATES
from inkling_core.gates.client import Client
from inkling_core.gates.reference import Reference
from inkling_core.gates.verdict import Target
from inkling_core.generate_text import Text
from inkling_core.nano import eval as nano_eval
from inkling_core.nano import tasks
from inkling_core.nano.faults import FAULTS

CASES = int(os.environ.get("INKLING_HELDOUT_CASES", "12"))
LONGEST_ANSWER = 160
CHUNK = 256  # as in conftest.py
pytestmark = pytest.mark.server


def ask(server: Any, prompt: list[int]) -> list[int]:
    body = {
        "prompt": prompt,
        "max_tokens": LONGEST_ANSWER,
        "temperature": 0,
        "return_token_ids": True,
    }
    answer = server.post("/v1/completions", body)
    assert answer.status == 200, answer.body
    return answer.body["choices"][0]["token_ids"]


@pytest.mark.parametrize("task", tasks.TASKS)
def test_held_out_answers_are_the_dense_references(task: str, nano_server: Any) -> None:
    text = Text.from_checkpoint(EMBEDDED)
    decoder = load_decoder(EMBEDDED)
    made = tasks.cases(task, "heldout", CASES, seed=1)
    prompts = [nano_eval.exam(case, text).prompt for case in made]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda prompt: ask(nano_server, prompt), prompts))
    served = [
        nano_eval.Exam(case, prompt, answer)
        for case, prompt, answer in zip(made, prompts, answers, strict=True)
    ]
    same = [
        exact for group in nano_eval.packs(served) for exact, _ in nano_eval.judge(decoder, group)
    ]
    assert all(same), f"{same.count(False)} of {CASES} served answers leave the reference"


def test_every_gate_passes(nano_server: Any, tmp_path: Path) -> None:
    report = tmp_path / "gates.json"
    url = f"http://127.0.0.1:{nano_server.settings.port}"
    status = gates.run(GatesSettings(url=url, chunk=CHUNK, out=str(report)))
    findings = [f for gate in json.loads(report.read_text())["gates"] for f in gate["findings"]]
    assert [f for f in findings if not f["ok"]] == []
    assert status == 0 and len(findings) > 60


def test_a_gate_sees_a_fault_of_the_model(nano_server: Any) -> None:
    """The fault is put into the reference: the two then differ as a faulty server would."""
    spoiled = load_decoder(EMBEDDED)
    with torch.inference_mode():
        next(one for one in FAULTS if one.name == "bias dropped").spoil(spoiled)
    url = f"http://127.0.0.1:{nano_server.settings.port}"
    reference = Reference(spoiled, Text.from_checkpoint(EMBEDDED))
    target = Target(Client(url), reference, is_nano=True, chunk=CHUNK)
    findings = list(GATES["concurrent"](target))
    assert len(findings) == 16
    assert sum(not finding.ok for finding in findings) >= 8, findings


def test_the_long_tier_passes(nano_server: Any, tmp_path: Path) -> None:
    """Three of its gates; `nox -s long_tier` sets INKLING_LONG_TIER=all, rates and soak too."""
    report = tmp_path / "gates.json"
    url = f"http://127.0.0.1:{nano_server.settings.port}"
    everything = os.environ.get("INKLING_LONG_TIER") == "all"
    asked = () if everything else ("long_needles", "far_copy", "residents")
    settings = GatesSettings(url=url, tier="long", gates=asked, chunk=CHUNK, out=str(report))
    status = gates.run(settings)
    findings = [f for gate in json.loads(report.read_text())["gates"] for f in gate["findings"]]
    assert [f for f in findings if not f["ok"]] == []
    assert status == 0 and len(findings) == (221 if everything else 15)


def test_an_address_without_a_server_is_told() -> None:
    with pytest.raises(ConnectionError, match="no server answers there"):
        gates.run(GatesSettings(url="http://127.0.0.1:1", gates=("smoke",)))
