"""Counts one decode step of the served model inside vllm-gaudi's real runner.

    python -m inkling_hpu.emulation count_ops.py MODEL OUT.json ENGINE.json

What it is: the rule and the hooks of `inkling_hpu.counter` around `InklingForGaudi.forward` and
`compute_logits`, which the unmodified runner calls. The last decode step is kept: by then whatever
is made at the first call is made.

What it is not: a judgement; test_op_count.py compares with the count on the meta device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

EMULATION = "emulation"


class CountedSteps:
    """Wraps the serving class; `steps` holds a tally per decode step, oldest first."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def watch(self) -> None:
        from inkling_hpu.serving_model import InklingForGaudi

        forward, logits = InklingForGaudi.forward, InklingForGaudi.compute_logits
        decoding = False

        def counted_forward(model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal decoding
            decoding = not model._forward_context().attn_metadata.is_prompt
            if not decoding:
                return forward(model, input_ids, *args, **kwargs)
            return self._count(model, forward, input_ids, *args, **kwargs)

        def counted_logits(model: Any, hidden_states: Any) -> Any:
            if not decoding:
                return logits(model, hidden_states)
            return self._count(model, logits, hidden_states, into=self.steps.pop())

        InklingForGaudi.forward = counted_forward
        InklingForGaudi.compute_logits = counted_logits

    def _count(self, model: Any, run: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
        from inkling_hpu.counter.layer_kinds import LayerKinds
        from inkling_hpu.counter.mode import OpCounter

        with LayerKinds(model.decoder) as kinds, OpCounter(lambda: place(kinds)) as mode:
            if into is not None:
                mode.tally = into
            result = run(model, *args, **kwargs)
        self.steps.append(mode.tally)
        return result


def place(kinds: Any) -> tuple[str, str]:
    """As the counter's, but for the emulation's own checks of indices, which no device runs."""
    from inkling_hpu.counter.parts import PARTS, place_of_caller

    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("inkling_hpu.emulation"):
            return kinds.current, EMULATION
        if module in PARTS:
            break
        frame = frame.f_back
    return place_of_caller(kinds)


def main(model: str, out: str, engine: str) -> None:
    """Generate with five prompts and write the last decode step's rows."""
    watched = CountedSteps()
    watched.watch()
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, **json.loads(Path(engine).read_text()))
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [5 + n % 200 for n in range(size)]} for size in (3, 130, 260)]
    llm.generate(prompts, params, use_tqdm=False)
    rows = watched.steps[-1].rows
    found = [[*key, sums.ops, sums.all_reduces, sums.bytes] for key, sums in rows.items()]
    Path(out).write_text(json.dumps({"steps": len(watched.steps), "rows": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
