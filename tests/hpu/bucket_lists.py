"""vllm-gaudi's own bucket manager, on the file that the plug-in writes or on others: its lists and
its choices.

bucket_lists.py ASKED.json OUT.json       a list of questions in, a list of answers out

A question has a `profile`, `num_blocks`, the shapes `prefills` and `decodes`, and may have a
`file`: the text of an operator's file, written to where the operator's variable points.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(asked: str, out: str) -> None:
    questions = json.loads(Path(asked).read_text())
    Path(out).write_text(
        json.dumps([answer(one, Path(out).parent / "inkling") for one in questions])
    )


def answer(question: dict[str, Any], folder: Path) -> dict[str, Any]:
    from inkling_hpu.buckets.file import VARIABLE, put_in_place
    from inkling_hpu.buckets.profile import Profile

    profile = Profile(**question["profile"])
    if "file" in question:
        Path(os.environ[VARIABLE]).write_text(question["file"])
    put_in_place(profile, folder, os.environ)
    from vllm_gaudi.extension.bucketing.common import HPUBucketingManager

    manager = HPUBucketingManager()
    manager.initialize(
        profile.max_num_seqs, 1, profile.block_size, profile.chunk, profile.max_model_len
    )
    manager.num_hpu_blocks = question["num_blocks"]
    manager.generate_prompt_buckets()
    manager.generate_decode_buckets()
    return {
        "prefill": list(manager.prompt_buckets),
        "decode": list(manager.decode_buckets),
        "prefill_choices": [manager.find_prompt_bucket(*shape) for shape in question["prefills"]],
        "decode_choices": [manager.find_decode_bucket(b, n) for b, _, n in question["decodes"]],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
