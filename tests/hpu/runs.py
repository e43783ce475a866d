"""A run of the real vllm-gaudi runner: what goes in, what came out, in a process of its own.

What it is: two dataclasses and the launch. Each run is a fresh process, because vllm-gaudi changes
torch, transformers and vLLM for good when it is imported.

What it is not: pytest's business (conftest.py) or a judgement (judging.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 3600  # a run takes 20 to 60 s on an idle machine; a crowded one has taken 30 minutes
# Lazy mode is what production runs; it is also the mode in which graphs are captured.
BASE = {"PT_HPU_LAZY_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
SKIP_WARMUP = {"VLLM_SKIP_WARMUP": "true"}
WARM_UP = {  # few and small buckets: the CPU runs every one of them
    "VLLM_SKIP_WARMUP": "false",
    "VLLM_PROMPT_QUERY_BUCKET_MAX": "256",
    "VLLM_PROMPT_CTX_BUCKET_MAX": "4",
    "VLLM_DECODE_BLOCK_BUCKET_MAX": "32",
}


@dataclass(frozen=True)
class Batch:
    """Prompts that are submitted together; how many tokens each answer has, or all of them."""

    prompts: Sequence[Sequence[int]]
    max_tokens: int | Sequence[int] = 24

    def lengths(self) -> list[int]:
        """Tokens of each answer."""
        asked = self.max_tokens
        return [asked] * len(self.prompts) if isinstance(asked, int) else list(asked)


@dataclass(frozen=True)
class Run:
    """One engine and its batches, in order.

    engine: keyword arguments of vLLM's `LLM`; environ: more variables for the process.
    poison: conv rows of every block that is handed out become NaN first (one rank only).
    log_probs: ask for the log-probability of every generated token.
    sources: folder with packages that stand before the installed ones; None is no such folder.
    """

    model: Path
    batches: Sequence[Batch]
    engine: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    poison: bool = False
    log_probs: bool = False
    sources: Path | None = None

    def arguments(self) -> dict[str, Any]:
        """The engine's keyword arguments, defaults filled in."""
        defaults = {
            "dtype": "bfloat16",
            "max_model_len": 1024,
            "max_num_seqs": 8,
            "num_gpu_blocks_override": 96,
            "enforce_eager": True,
            "enable_prefix_caching": False,
        }
        return {**defaults, **self.engine}


@dataclass(frozen=True)
class Outcome:
    """What a run did, batch by batch.

    tokens[batch][prompt]: generated ids; cached[batch][prompt]: prompt tokens from the cache.
    log_probs[batch][prompt]: of the generated ids, or nothing where nobody asked.
    graphs: distinct would-be graphs after start-up and after each batch.
    """

    tokens: list[list[list[int]]]
    log_probs: list[list[list[float]]]
    cached: list[list[int]]
    preemptions: list[int]
    graphs: list[int]
    poisoned: int
    blocks: int
    log: str


def execute(run: Run, folder: Path) -> Outcome:
    """Run it in a new process. Raises RunFailed with the end of its log."""
    batches = [
        {
            "prompts": [list(ids) for ids in batch.prompts],
            "max_tokens": batch.lengths(),
            "log_probs": run.log_probs,
        }
        for batch in run.batches
    ]
    return read(*launch("engine.py", run, folder, {"steps": batches, "poison": run.poison}))


def launch(
    script: str, run: Run, folder: Path, more: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """A script of this folder in a new process on the emulated device: its answer and its log.

    It gets two files: model, engine and `more` as JSON, and where to write. Raises RunFailed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked, got, log = folder / "run.json", folder / "out.json", folder / "log.txt"
    asked.write_text(json.dumps({"model": str(run.model), "engine": run.arguments(), **more}))
    command = [sys.executable, "-m", "inkling_hpu.emulation", str(HERE / script)]
    with log.open("w") as out:
        done = subprocess.run(
            [*command, str(asked), str(got)],
            env=environment(run, folder),
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    text = log.read_text()
    if done.returncode or not got.exists():
        raise RunFailed(f"exit status {done.returncode}; the log ends:\n{text[-4000:]}")
    return json.loads(got.read_text()), text


def read(out: Mapping[str, Any], log: str) -> Outcome:
    """The child's answer."""
    steps = out["steps"]
    return Outcome(
        tokens=[step["tokens"] for step in steps],
        log_probs=[step["log_probs"] for step in steps],
        cached=[step["cached"] for step in steps],
        preemptions=[step["preemptions"] for step in steps],
        graphs=out["graphs"],
        poisoned=out["poisoned"],
        blocks=out["blocks"],
        log=log,
    )


def environment(run: Run, folder: Path) -> dict[str, str]:
    """The child's variables: ours and vLLM's start from nothing."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("INKLING_", "VLLM_", "PT_HPU"))
    }
    if run.sources is not None:
        paths = [str(run.sources), *filter(None, [kept.get("PYTHONPATH")])]
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    graph_log = {"INKLING_EMULATED_GRAPH_LOG": str(folder / "graphs.jsonl")}
    return {**kept, **BASE, **SKIP_WARMUP, **graph_log, **run.environ}


class RunFailed(AssertionError):
    """The engine did not come to the end; an assertion, since a test asked for it."""
