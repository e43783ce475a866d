"""The buckets of the plug-in inside vllm-gaudi: its manager reads them as they are and chooses as
`inkling buckets` says; a request beyond what was warmed is told once and answered."""

import json
import random
import subprocess
import sys
from dataclasses import asdict

import pytest
import runs
from prompts import of_lengths
from runs import Batch, Run

from inkling_hpu.buckets.coverage import choose, loaded
from inkling_hpu.buckets.file import VARIABLE, read
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import Profile

PROFILES = [Profile(1024, max_num_seqs=8, chunk=128), Profile(65_536), Profile(262_144)]
NUM_BLOCKS = 40_000  # main clamps decode buckets to three times the pool


@pytest.fixture
def manager(model, tmp_path):
    """Questions, more variables -> what vllm-gaudi's manager answers in a process of its own, its
    buckets as tuples."""

    def ask(questions, **environ):
        asked, out = tmp_path / "asked.json", tmp_path / "out.json"
        asked.write_text(json.dumps([{**one, "num_blocks": NUM_BLOCKS} for one in questions]))
        script = str(runs.HERE / "bucket_lists.py")
        subprocess.run(
            [sys.executable, "-m", "inkling_hpu.emulation", script, str(asked), str(out)],
            env=runs.environment(Run(model("nano"), [], environ=environ), tmp_path),
            timeout=runs.SECONDS,
            check=True,
        )
        answers = json.loads(out.read_text())
        return [{k: [tuple(bucket) for bucket in v] for k, v in one.items()} for one in answers]

    return ask


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: str(profile.max_model_len))
def test_the_manager_has_our_lists_and_makes_our_choices(profile, manager):
    draw = random.Random(profile.max_model_len)
    prefills, decodes = [], []
    for _ in range(300):
        query = draw.randint(1, profile.longest_query)
        prefills.append((1, query, draw.randint(0, profile.context_blocks(query))))
        batch = draw.randint(1, profile.max_num_seqs)
        decodes.append((batch, 1, draw.randint(batch, batch * profile.request_blocks)))
    question = {"profile": asdict(profile), "prefills": prefills, "decodes": decodes}
    (answer,), ours = manager([question]), generate(profile)
    assert answer["prefill"] == list(ours.prefill)
    assert answer["decode"] == list(ours.decode)
    assert answer["prefill_choices"] == [choose(ours.prefill, shape) for shape in prefills]
    assert answer["decode_choices"] == [choose(ours.decode, shape) for shape in decodes]


def operators_file(draw, profile):
    """A random one: numbers, lists and ranges, many of them beyond the limits of the profile."""

    def size(most):
        numbers = [draw.randint(2, most), draw.randint(2, most)]
        first, step = draw.randint(0, most), draw.randint(1, 1 + most // 3)
        return draw.choice([numbers[0], numbers, f"range({first}, {first + most}, {step})"])

    query, context = 2 * profile.chunk, 2 * profile.request_blocks
    lines = ["(1, 2, 0)", "(1, 1, 1)", "", "# the manager wants one bucket of each kind"]
    for _ in range(draw.randint(0, 6)):
        lines.append(f"({size(3)}, {size(query)}, {size(context)})")
        lines.append(f"({size(9)}, 1, {size(6 * context)})")
    return "\n".join(lines)


def test_the_manager_keeps_of_a_file_what_we_say(manager, tmp_path):
    draw, path = random.Random(0), tmp_path / "own.txt"
    questions, kept, dropped = [], [], 0
    for _ in range(40):
        length, chunk = draw.randint(2, 5000), draw.randint(2, 700)
        profile = Profile(length, max_num_seqs=draw.randint(1, 9), chunk=chunk)
        text = operators_file(draw, profile)
        path.write_text(text)
        whole = read(path)
        kept.append(loaded(profile, whole))
        dropped += len(whole) - len(kept[-1])
        shapes = {"prefills": [], "decodes": []}
        questions.append({"profile": asdict(profile), "file": text, **shapes})
    assert dropped > 100 and sum(map(len, kept)) > 100  # the draw shows both
    answers = manager(questions, **{VARIABLE: str(path)})
    for answer, ours in zip(answers, kept, strict=True):
        assert answer["prefill"] == list(ours.prefill)
        assert answer["decode"] == list(ours.decode)


def test_a_request_beyond_what_was_warmed_is_told_once_and_answered(model, execute, tmp_path):
    """Twice: prefills of more tokens, and decode steps of more blocks, than any bucket has. For
    those 0.26.0 says nothing: it makes a multiple of the largest."""
    few = tmp_path / "few.txt"
    few.write_text("(1, 128, 0)\n([1, 8], 1, [8])\n")
    batch = Batch(of_lengths((300, 400, 500, 450), 250), 12)
    engine = {"max_num_batched_tokens": 512}
    ours = execute(Run(model("nano"), [batch, batch], engine))
    short = execute(Run(model("nano"), [batch, batch], engine, {VARIABLE: str(few)}))
    assert short.tokens == ours.tokens
    told = "Prompt bucket for (1, 300, 0) was not prepared"
    assert short.log.count(told) == 1 and "not prepared" not in ours.log
