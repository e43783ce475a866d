"""Decode speed of the served engine beside HF transformers, as ratios, on the same cores.

    python benchmarks/serving_throughput.py [--threads 2] [--transformers-python PY]

One run does all of it: makes a mid-size random Inkling (hidden 512, 12 layers, 32 experts, bf16),
starts the server and, in a process without vLLM, transformers; checks that both compute the same
model; then measures in turns, so that a busy machine is busy for both. Nothing is printed as a
speed unless the check passed. A rate counts tokens after the first: prefill is left out of both.

    parity    float32: decoder with the CPU back end against transformers, largest logit difference
              bf16: the served answer under transformers, mean gap of its tokens to the best ones
    rates     1 stream; 8 streams at once; transformers: one, a batch of 8 equal lengths, 8 in turn

The bf16 check needs a second checkpoint of the same geometry, whose selection bias prefers the same
experts for every token. In a random model with free routing, rounding to bf16 flips near-ties of
the router and the flips feed on themselves: transformers in bf16 is then as far from transformers
in float32 as from anybody else, and agreement says nothing. The rates are of the free model.

transformers' Inkling needs scipy, which the serving environment lacks: name another environment's
interpreter with --transformers-python, or install scipy there.

Not a load generator and not a statement about other machines or sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from running_server import running

from inkling_core.serving.settings import ServeSettings

MID = {
    "hidden_size": 512,
    "num_hidden_layers": 12,
    "vocab_size": 8192,
    "unpadded_vocab_size": 8000,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 2,
    "head_dim": 64,
    "d_rel": 16,
    "sliding_window": 512,
    "rel_extent": 1024,
    "local_layer_ids": tuple(i for i in range(12) if i % 6 != 5),
    "dense_layer_count": 1,
    "n_routed_experts": 32,
    "num_experts_per_tok": 4,
    "n_shared_experts": 2,
    "moe_intermediate_size": 256,
    "intermediate_size": 2048,
    "max_position_embeddings": 4096,
    "log_scaling_n_floor": 2048,
    "mtp": None,
}
PORT, PROMPT, STREAMS = 8120, 64, 8
FLOAT32_LIMIT, BF16_LIMIT = 1e-4, 0.1
STEADY_BIAS = 10.0  # sigmoids lie within 1 of each other: ten keeps the others out
TARGETS = {"1 stream": 1.0, "8 streams / batch": 1.0, "8 streams / in turn": 2.5}


def prompts() -> list[list[int]]:
    """One prompt per stream, equal lengths, nothing shared."""
    return [[(7 * i + 13 * s) % 8000 for i in range(PROMPT)] for s in range(STREAMS)]


def steady_copy(folder: Path) -> Path:
    """The checkpoint with a selection bias that lets no rounding change the chosen experts."""
    import torch
    from safetensors.torch import load_file, save_file

    copy = folder.with_name("steady")
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for name in [name for name in tensors if name.endswith("gate.bias")]:
        preferred = torch.randperm(len(tensors[name]), generator=generator)
        tensors[name] += STEADY_BIAS * (preferred < MID["num_experts_per_tok"])
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


class Transformers:
    """The other side: a child process that answers one JSON line per question."""

    def __init__(self, python: str, folder: Path, threads: int) -> None:
        script = str(Path(__file__).with_name("transformers_decode.py"))
        self.process = subprocess.Popen(
            [python, "-W", "ignore", script, str(folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        """Blocks for the answer. RuntimeError when the child died."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the transformers process died; its error is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def transformers(options: argparse.Namespace, folder: Path) -> Iterator[Transformers]:
    """The transformers process for the length of the block."""
    other = Transformers(options.transformers_python, folder, options.threads)
    try:
        yield other
    finally:
        other.close()


def serve_settings(folder: Path, threads: int) -> ServeSettings:
    """The server of the mid-size model."""
    return ServeSettings(
        checkpoint=str(folder),
        served_model_name="mid",
        port=PORT,
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=STREAMS,
        prefix_caching=False,
        threads=threads,
    )


def stream(prompt: list[int], tokens: int) -> tuple[float, float, list[int]]:
    """Times of the first and last token, and the tokens."""
    body = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    connection = HTTPConnection("127.0.0.1", PORT, timeout=600)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    response = connection.getresponse()
    times, ids = [], []
    for line in response:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])["choices"]
            if chunk and chunk[0].get("token_ids"):
                times.append(time.perf_counter())
                ids += chunk[0]["token_ids"]
    if len(ids) != tokens:
        raise RuntimeError(f"asked for {tokens} tokens, got {len(ids)}")
    return times[0], times[-1], ids


def served_rate(streams: int, tokens: int) -> float:
    """Decode tokens per second over all streams, from the last stream's first token on."""
    with ThreadPoolExecutor(streams) as pool:
        runs = list(pool.map(lambda p: stream(p, tokens), prompts()[:streams]))
    first, last = min(run[0] for run in runs), max(run[1] for run in runs)
    return streams * (tokens - 1) / (last - first)


def check_parity(folder: Path, options: argparse.Namespace) -> None:
    """Prints both differences; SystemExit when either is above its limit."""
    steady = steady_copy(folder)
    with (
        transformers(options, steady) as other,
        running(serve_settings(steady, options.threads)),
    ):
        difference, std = float32_difference(steady, other)
        gap = statistics.mean(
            other.ask(what="agreement", ids=prompt, answer=stream(prompt, options.tokens)[2])
            for prompt in prompts()
        )
    print(f"parity float32: largest logit difference {difference:.1e} (std {std:.2f})")
    print(f"parity bf16: mean gap of served tokens to transformers' best {gap:.4f} nats")
    if difference > FLOAT32_LIMIT or gap > BF16_LIMIT:
        raise SystemExit("PARITY FAILED: no speed is reported")


def float32_difference(folder: Path, other: Transformers) -> tuple[float, float]:
    """Largest difference of one prompt's logits, and the logits' standard deviation."""
    import torch

    from inkling_core.config import InklingConfig
    from inkling_core.generate import TokenGenerator
    from inkling_core.model import Decoder
    from inkling_core.serving.cpu import CPU
    from inkling_core.weights import load

    config = InklingConfig.from_checkpoint(folder)
    decoder = Decoder(config, CPU).load_weights(load(folder, config, progress="off").items())
    ids = prompts()[0]
    ours = TokenGenerator(decoder, PROMPT).feed(ids)
    theirs = torch.tensor(other.ask(what="logits", ids=ids))
    return float((ours - theirs).abs().max()), float(theirs.std())


def measure(other: Transformers, rounds: int, tokens: int) -> dict[str, list[float]]:
    """Ratios served / transformers of each round, both sides in turn."""
    ratios: dict[str, list[float]] = {name: [] for name in TARGETS}
    for round_ in range(rounds):
        one, ours_one = other.ask(what="rate", batch=1, tokens=tokens), served_rate(1, tokens)
        batch = other.ask(what="rate", batch=STREAMS, tokens=tokens)
        ours = served_rate(STREAMS, tokens)
        turn = other.ask(what="in turn", batch=STREAMS, tokens=tokens)
        again = served_rate(STREAMS, tokens)
        ratios["1 stream"].append(ours_one / one)
        ratios["8 streams / batch"].append(ours / batch)
        ratios["8 streams / in turn"].append(again / turn)
        print(
            f"round {round_}: tokens/s served {ours_one:.1f}, {ours:.1f}, {again:.1f}; "
            f"transformers {one:.1f} (1), {batch:.1f} (batch), {turn:.1f} (in turn)"
        )
    return ratios


def main() -> None:
    """See the module docstring. Exit status 1 when a ratio is below its target."""
    parser = argparse.ArgumentParser(description="served engine beside transformers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--transformers-python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    import torch

    from inkling_core.weights.tiny import make_tiny

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "mid"
        make_tiny(folder, MID, dtype=torch.bfloat16, tokenizer=True)
        check_parity(folder, options)
        with (
            transformers(options, folder) as other,
            running(serve_settings(folder, options.threads)),
        ):
            ratios = measure(other, options.rounds, options.tokens)
    print(f"{options.threads} threads on both sides, no binding, medians of {options.rounds}:")
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    for name, target in TARGETS.items():
        print(f"  {name:22s} {medians[name]:.2f}x  (target {target}x)")
    sys.exit(any(medians[name] < target for name, target in TARGETS.items()))


if __name__ == "__main__":
    main()
