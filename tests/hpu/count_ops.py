"""Counts decode steps of the served model inside vllm-gaudi's real runner: a child process.

    python -m inkling_hpu.emulation count_ops.py RUN.json OUT.json

What it is: the rule of `inkling_hpu.counter` around `InklingForGaudi.forward` and `compute_logits`,
which the unmodified runner calls, in every rank (`Counting` extends vLLM's worker class). The last
decode step is kept: by then whatever is made at the first call is made.

What it is not: a judgement; test_op_count.py compares with the count on the meta device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CHECKS = ("inkling_hpu.emulation.indices", "wrap")
EMULATION = "emulation"


class Counting:
    """What `worker_extension_cls` adds to the worker of each rank."""

    def start_counting(self) -> None:
        """From now on every decode step of this rank is counted."""
        from inkling_hpu.serving_model import InklingForGaudi

        self.steps: list[Any] = []
        forward, logits = InklingForGaudi.forward, InklingForGaudi.compute_logits
        decoding = False

        def counted_forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal decoding
            decoding = not model._forward_context().attn_metadata.is_prompt
            run = self._count if decoding else _plainly
            return run(forward, None, model, *args, **kwargs)

        def counted_logits(model: Any, *args: Any, **kwargs: Any) -> Any:
            run = self._count if decoding else _plainly
            return run(logits, self.steps[-1:], model, *args, **kwargs)

        InklingForGaudi.forward = counted_forward
        InklingForGaudi.compute_logits = counted_logits

    def last_step(self) -> list[list[Any]]:
        """Layer kind, part, op, ops, all-reduces of the last decode step."""
        rows = self.steps[-1].rows
        return [[*key, sums.ops, sums.all_reduces] for key, sums in rows.items()]

    def _count(self, run: Any, step: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        from inkling_hpu.counter.layer_kinds import LayerKinds
        from inkling_hpu.counter.mode import OpCounter

        with LayerKinds(model.decoder) as kinds, OpCounter(lambda: place(kinds)) as counter:
            if step:
                (counter.tally,) = step
            result = run(model, *args, **kwargs)
        if not step:
            self.steps.append(counter.tally)
        return result


def _plainly(run: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
    return run(*args, **kwargs)


def place(kinds: Any) -> tuple[str, str]:
    """As the counter's, but for the emulation's own checks of indices, which no device runs."""
    from inkling_hpu.counter.parts import place_of_caller

    frame = sys._getframe(1)
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == CHECKS:
            return kinds.current, EMULATION
        frame = frame.f_back
    return place_of_caller(kinds)


def main(run_path: str, out_path: str) -> None:
    """Generate as RUN.json says, counting; write the rows of every rank."""
    run = json.loads(Path(run_path).read_text())
    from vllm import LLM, SamplingParams

    llm = LLM(model=run["model"], worker_extension_cls="count_ops.Counting", **run["engine"])
    llm.collective_rpc("start_counting")
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": ids} for ids in run["prompts"]]
    llm.generate(prompts, params, use_tqdm=False)
    Path(out_path).write_text(json.dumps({"ranks": llm.collective_rpc("last_step")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
