"""Reproduces four wrong answers of vllm-gaudi's model runner on a small random Llama.

    python reproduce.py resumed    a preempted request resumes with a prefix hit
    python reproduce.py order      a prefix hit on a block that another prefill of the step fills
    python reproduce.py decode     a prefix hit on a block that a decode of the step fills
    python reproduce.py paused --async-scheduling
                                   a decoding request is left out of a step

Each scenario prints the largest logit gap of a generated token: how far the token's logit lies
below the best one when transformers computes the same text in float32. Rounding of bfloat16 gives
up to 0.5 over 300 tokens; a wrong row gives several.

Needs vllm, vllm_gaudi and transformers, a Gaudi or anything that stands in for one, and no
downloads. `--worker-cls` runs it with another worker, for example one that carries a fix.

What it is not: a benchmark or a test; the tests call it.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Sequence
from typing import Any

import torch

VOCABULARY = 512
# Sharp attention: a single wrong key shows. The rest is small enough for bfloat16.
SPREAD = {"q_proj": 0.2, "k_proj": 0.2, "v_proj": 0.2, "o_proj": 0.2, "lm_head": 0.2}
TAILS = range(1, 13)  # seeds of prompts; the last token of some looks at the key that is missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=tuple(SCENARIOS))
    parser.add_argument("--worker-cls", default="auto", help="worker class, as vLLM takes it")
    parser.add_argument("--async-scheduling", action="store_true", help="vLLM's default is on")
    options = parser.parse_args()
    # The engine in this process: two scenarios add requests between its steps.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_SKIP_WARMUP", "true")
    from vllm.platforms import current_platform  # the device comes up before any model is made

    print(f"platform {current_platform.device_name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder)
        told = {
            "model": folder,
            "worker_cls": options.worker_cls,
            "async_scheduling": options.async_scheduling,
        }
        pairs = SCENARIOS[options.scenario](told)
        print(f"{options.scenario}: largest logit gap {largest_gap(folder, pairs):.3f}", flush=True)


def make_model(folder: str) -> None:
    """A two-layer Llama whose attention is sharp enough for one missing key to show."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                spread = [s for part, s in SPREAD.items() if part in name]
                parameter.normal_(0, spread[0] if spread else 0.08)
    model.save_pretrained(folder)


def engine(told: dict[str, Any], **more: Any) -> Any:
    """An offline engine with prefix caching, greedy and without a tokenizer."""
    from vllm import LLM

    return LLM(
        skip_tokenizer_init=True,
        max_model_len=1024,
        dtype="bfloat16",
        enforce_eager=True,
        enable_prefix_caching=True,
        **told,
        **more,
    )


def greedy(tokens: int) -> Any:
    """Sampling parameters for exactly `tokens` greedy tokens."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)


def random_ids(seed: int, length: int) -> list[int]:
    """A prompt."""
    generator = random.Random(seed)
    return [generator.randrange(3, VOCABULARY) for _ in range(length)]


Pairs = Sequence[tuple[list[int], list[int]]]


def resumed(told: dict[str, Any]) -> Pairs:
    """Six requests of 300 tokens in a pool of 11 blocks: some are preempted, and resume with hits
    on their own blocks."""
    llm = engine(told, max_num_seqs=8, num_gpu_blocks_override=11)
    prompts = [
        random_ids(seed, length) for seed, length in enumerate((61, 120, 130, 250, 300, 384))
    ]
    answers = llm.generate([{"prompt_token_ids": p} for p in prompts], greedy(300))
    return [(p, list(a.outputs[0].token_ids)) for p, a in zip(prompts, answers, strict=True)]


def order(told: dict[str, Any]) -> Pairs:
    """Step 1: `first`, and 6 tokens of `long`. Step 2: the rest of `long`, and `hit`, which shares
    128 tokens with it and takes the row that `first` has left, in front of it."""
    llm = engine(told, max_num_seqs=4, max_num_batched_tokens=256)
    first, long = random_ids(0, 250), random_ids(1, 140)
    prompts = [first, long, long[:128] + random_ids(2, 6)]
    answers = llm.generate(
        [{"prompt_token_ids": p} for p in prompts], [greedy(1), greedy(8), greedy(8)]
    )
    print("  prefix hits:", [answer.num_cached_tokens for answer in answers])
    return [(p, list(a.outputs[0].token_ids)) for p, a in zip(prompts, answers, strict=True)]


def decode(told: dict[str, Any]) -> Pairs:
    """Twelve requests arrive when `first` is about to compute the last position of a block, with
    prompts that continue that block."""
    llm = engine(told, max_num_seqs=16, block_size=16)
    prompts = {"first": random_ids(0, 8)}
    inner = llm.llm_engine
    inner.add_request("first", {"prompt_token_ids": prompts["first"]}, greedy(24))
    done: dict[str, list[int]] = {}
    while inner.has_unfinished_requests():
        for output in inner.step():
            answer = list(output.outputs[0].token_ids)
            done[output.request_id] = answer
            # Position 15 holds the answer's eighth token, which the next step computes.
            if output.request_id == "first" and len(answer) == 8:
                for seed in TAILS:
                    name = f"hit {seed}"
                    prompts[name] = prompts["first"] + answer + random_ids(seed, 1)
                    inner.add_request(name, {"prompt_token_ids": prompts[name]}, greedy(8))
            elif output.finished:
                print(f"  {output.request_id}: prefix hits {output.num_cached_tokens}")
    return [(prompts[name], done[name]) for name in prompts]


def paused(told: dict[str, Any]) -> Pairs:
    """Five answers side by side; every third step leaves out the request that came first."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    base: Any = AsyncScheduler if told["async_scheduling"] else Scheduler

    class Pausing(base):
        """vLLM's, which builds a step out of what it finds in `running`."""

        steps = 0

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            left_out = self.running[:1] if self.steps % 3 == 0 and len(self.running) > 1 else []
            self.running = self.running[len(left_out) :]
            try:
                return super().schedule(*args, **kwargs)
            finally:
                self.running = left_out + self.running

    llm = engine(told, max_num_seqs=8, scheduler_cls=Pausing)
    prompts = [random_ids(seed, length) for seed, length in enumerate((7, 20, 33, 46, 59))]
    answers = llm.generate([{"prompt_token_ids": p} for p in prompts], greedy(24))
    return [(p, list(a.outputs[0].token_ids)) for p, a in zip(prompts, answers, strict=True)]


SCENARIOS = {"resumed": resumed, "order": order, "decode": decode, "paused": paused}


def largest_gap(folder: str, pairs: Pairs) -> float:
    """Largest distance of a generated token's logit to the best one, in float32."""
    from transformers import AutoModelForCausalLM

    # eager: vllm-gaudi replaces transformers' sdpa attention, which a reference must not use
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    worst = 0.0
    for prompt, answer in pairs:
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        gap = float((logits.max(-1).values - chosen).max())
        print(f"  prompt {len(prompt)}, answer {len(answer)}: gap {gap:.3f}", flush=True)
        worst = max(worst, gap)
    return worst


if __name__ == "__main__":
    main()
