"""The buckets of the plug-in inside vllm-gaudi: its manager reads them as they are and chooses as
`inkling buckets` says; a request beyond what was warmed is told once and answered."""

import json
import random
import subprocess
import sys

import pytest
import runs
from prompts import of_lengths
from runs import Batch, Run

from inkling_hpu.buckets.coverage import choose
from inkling_hpu.buckets.file import VARIABLE
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import Profile

PROFILES = [Profile(1024, 8, 128), Profile(65_536), Profile(262_144)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: str(profile.max_model_len))
def test_the_manager_has_our_lists_and_makes_our_choices(profile, tmp_path, model):
    draw = random.Random(profile.max_model_len)
    prefills, decodes = [], []
    for _ in range(300):
        query = draw.randint(1, profile.longest_query)
        prefills.append((1, query, draw.randint(0, profile.context_blocks(query))))
        batch = draw.randint(1, profile.max_num_seqs)
        decodes.append((batch, 1, draw.randint(batch, batch * profile.request_blocks)))
    names = ("max_model_len", "max_num_seqs", "chunk")
    question = {
        "profile": {name: getattr(profile, name) for name in names},
        "num_blocks": 40_000,  # main clamps decode buckets to three times the pool
        "prefills": prefills,
        "decodes": decodes,
    }
    asked, out = tmp_path / "asked.json", tmp_path / "out.json"
    asked.write_text(json.dumps(question))
    script = str(runs.HERE / "bucket_lists.py")
    subprocess.run(
        [sys.executable, "-m", "inkling_hpu.emulation", script, str(asked), str(out)],
        env=runs.environment(Run(model("nano"), []), tmp_path),
        timeout=runs.SECONDS,
        check=True,
    )
    answer, ours = json.loads(out.read_text()), generate(profile)
    assert [tuple(bucket) for bucket in answer["prefill"]] == list(ours.prefill)
    assert [tuple(bucket) for bucket in answer["decode"]] == list(ours.decode)
    for shapes, listed, chosen in (
        (prefills, ours.prefill, answer["prefill_choices"]),
        (decodes, ours.decode, answer["decode_choices"]),
    ):
        assert [choose(listed, shape) for shape in shapes] == [tuple(bucket) for bucket in chosen]


def test_a_request_beyond_what_was_warmed_is_told_once_and_answered(model, execute, tmp_path):
    """Two equal requests, each a prefill of more tokens than any bucket has."""
    few = tmp_path / "few.txt"
    few.write_text("(1, 128, 0)\n([1, 8], 1, [8, 64])\n")
    batch = Batch(of_lengths((300,), 250), 12)
    engine = {"max_num_batched_tokens": 512}
    ours = execute(Run(model("nano"), [batch, batch], engine))
    short = execute(Run(model("nano"), [batch, batch], engine, {VARIABLE: str(few)}))
    assert short.tokens == ours.tokens
    told = "Prompt bucket for (1, 300, 0) was not prepared"
    assert short.log.count(told) == 1 and "not prepared" not in ours.log
