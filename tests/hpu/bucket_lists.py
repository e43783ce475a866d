"""vllm-gaudi's own bucket manager with the file that the plug-in writes: its lists and its choices.

bucket_lists.py ASKED.json OUT.json       profile and shapes in; buckets and choices out
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path


def main(asked: str, out: str) -> None:
    question = json.loads(Path(asked).read_text())
    from inkling_hpu.buckets.file import put_in_place
    from inkling_hpu.buckets.profile import Profile

    profile = Profile(**question["profile"])
    put_in_place(profile, Path(out).parent, os.environ)
    from vllm_gaudi.extension.bucketing.common import HPUBucketingManager

    manager = HPUBucketingManager()
    manager.initialize(
        profile.max_num_seqs, 1, profile.block_size, profile.chunk, profile.max_model_len
    )
    manager.num_hpu_blocks = question["num_blocks"]
    manager.generate_prompt_buckets()
    manager.generate_decode_buckets()
    answer = {
        "profile": asdict(profile),
        "prefill": list(manager.prompt_buckets),
        "decode": list(manager.decode_buckets),
        "prefill_choices": [manager.find_prompt_bucket(*shape) for shape in question["prefills"]],
        "decode_choices": [manager.find_decode_bucket(b, n) for b, _, n in question["decodes"]],
    }
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
