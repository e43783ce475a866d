"""One engine, several batches: the child process of `runs.py`, on the emulated device.

    python -m inkling_hpu.emulation engine.py RUN.json OUT.json

What it is: vLLM's `LLM` with vllm-gaudi's unmodified platform, worker and runner under it. The
engine core runs in this process, so that hand-outs of blocks and preemptions can be watched.

What it is not: a judge. It writes down what was generated; `judging.py` compares.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


class Watch:
    """Counts preemptions; with `poison`, fills conv rows of handed-out blocks with NaN."""

    def __init__(self) -> None:
        self.preemptions = 0
        self.poisoned = 0
        self.stores: list[Any] = []

    def count_preemptions(self) -> None:
        from vllm.v1.core.sched.scheduler import Scheduler

        original = Scheduler._preempt_request

        def counted(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            self.preemptions += 1
            return original(scheduler, *args, **kwargs)

        Scheduler._preempt_request = counted

    def poison_new_blocks(self) -> None:
        """From now on a block's rows are NaN until somebody writes them."""
        from vllm.v1.core.block_pool import BlockPool

        original = BlockPool.get_new_blocks

        def poisoned(pool: Any, *args: Any, **kwargs: Any) -> Any:
            blocks = original(pool, *args, **kwargs)
            for store in self.stores:
                for rows in store.rows:
                    rows[[block.block_id for block in blocks]] = float("nan")
            self.poisoned += len(blocks) if self.stores else 0
            return blocks

        BlockPool.get_new_blocks = poisoned


def main(run_path: str, out_path: str) -> None:
    """Run what RUN.json describes."""
    run = json.loads(Path(run_path).read_text())
    watch = Watch()
    watch.count_preemptions()
    if run["poison"]:
        watch.poison_new_blocks()
    from vllm import LLM

    bare = not (Path(run["model"]) / "tokenizer.json").exists()
    llm = LLM(model=run["model"], skip_tokenizer_init=bare, **run["engine"])
    if run["poison"]:
        watch.stores = [conv_rows(llm)]
    graphs = [count_graphs()]
    steps = []
    for step in run["steps"]:
        before = watch.preemptions
        steps.append(generate(llm, step))
        steps[-1]["preemptions"] = watch.preemptions - before
        graphs.append(count_graphs())
    out = {"steps": steps, "graphs": graphs, "poisoned": watch.poisoned, "blocks": num_blocks(llm)}
    Path(out_path).write_text(json.dumps(out))


def generate(llm: Any, step: dict[str, Any]) -> dict[str, Any]:
    """One batch, greedy: tokens, their log-probabilities where asked for, and how much of each
    prompt came from the prefix cache."""
    from vllm import SamplingParams

    asked = 0 if step["log_probs"] else None  # 0: of the generated token alone
    fixed = {"temperature": 0.0, "ignore_eos": True, "detokenize": False, "logprobs": asked}
    params = [SamplingParams(max_tokens=count, **fixed) for count in step["max_tokens"]]
    prompts = [{"prompt_token_ids": ids} for ids in step["prompts"]]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "log_probs": [log_probs(output.outputs[0]) for output in outputs] if asked == 0 else [],
        "cached": [int(output.num_cached_tokens or 0) for output in outputs],
    }


def log_probs(answer: Any) -> list[float]:
    """Of each generated token."""
    pairs = zip(answer.token_ids, answer.logprobs, strict=True)
    return [choices[token].logprob for token, choices in pairs]


def conv_rows(llm: Any) -> Any:
    """The conv store of the served model (one process, one rank)."""
    core = llm.llm_engine.engine_core.engine_core
    worker = core.model_executor.driver_worker.worker
    return worker.model_runner.get_model()._caches.conv


def num_blocks(llm: Any) -> int:
    """Blocks of the pool, the null block included."""
    return llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config.num_blocks


def count_graphs() -> int:
    """Distinct would-be graphs so far, of every rank's first process."""
    log = Path(os.environ["INKLING_EMULATED_GRAPH_LOG"])
    lines = log.read_text().splitlines() if log.exists() else []
    return len({json.loads(line)["digest"] for line in lines})


if __name__ == "__main__":
    main(*sys.argv[1:])
