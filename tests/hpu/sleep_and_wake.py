"""An engine that answers, sleeps, wakes up and answers again; run on the emulated device.

    sleep_and_wake.py MODEL OUT.json

Writes the answers before and after, and what the model held while asleep and after.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(model: str, out: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model,
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=4,
        num_gpu_blocks_override=32,
        enforce_eager=True,
        enable_prefix_caching=True,
        enable_sleep_mode=True,
    )
    served = llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [3 + (7 * i) % 250 for i in range(n)]} for n in (9, 150)]

    def answers() -> list[list[int]]:
        done = llm.generate(prompts, params)
        return [list(answer.outputs[0].token_ids) for answer in done]

    before = answers()
    old = served._caches.conv.rows[0]
    llm.sleep(level=1)
    asleep = served._caches is None
    llm.wake_up()
    rows = served._caches.conv.rows[0]
    fresh = rows is not old and not bool(rows.any())
    found = {"before": before, "asleep": asleep, "fresh": fresh, "after": answers()}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
