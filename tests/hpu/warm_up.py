"""A warm-up on vllm-gaudi's runner in which one graph fails or never ends, then a request.

warm_up.py ASKED.json OUT.json       `fault`: memory, stuck or none
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

# The Gaudi bridge's own words for an allocation that failed; it speaks of no "out of memory".
BRIDGE_SAYS = (
    "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB"
)


def break_decodes(fault: str) -> None:
    """The decode graphs of four requests and more fail from now on, while warming up."""
    from inkling_hpu.runner import InklingRunner

    original = InklingRunner._create_decode_input_data

    def broken(runner: Any, num_decodes: int, *arguments: Any, **options: Any) -> Any:
        if runner._progress is not None and num_decodes >= 4:
            if fault == "stuck":
                time.sleep(600)
            raise RuntimeError(BRIDGE_SAYS)
        return original(runner, num_decodes, *arguments, **options)

    InklingRunner._create_decode_input_data = broken


def main(asked: str, out: str) -> None:
    question = json.loads(Path(asked).read_text())
    if question["fault"] != "none":
        break_decodes(question["fault"])
    from vllm import LLM, SamplingParams

    llm = LLM(model=question["model"], **question["engine"])
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [3 + (7 * i) % 250 for i in range(9 + n)]} for n in range(6)]
    done = llm.generate(prompts, params, use_tqdm=False)
    from prometheus_client import REGISTRY

    from inkling_core.serving.metrics import GAUGES

    print(
        {name: REGISTRY.get_sample_value(name) for name in GAUGES}
    )  # the engine is in this process
    Path(out).write_text(json.dumps([list(answer.outputs[0].token_ids) for answer in done]))


if __name__ == "__main__":
    main(*sys.argv[1:])
