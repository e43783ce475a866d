"""Settings of the commands that have no module of their own to keep them.

Not the YAML values (`conf/`) and not Hydra's schema (`schema.py` derives it). One convention for
every settings class, here and in the owners' modules (`serving/settings.py`): a frozen dataclass,
each field explained in the class docstring as `name: what it does`, limits checked in
`__post_init__` with a ValueError. The help page, Hydra's types and the messages about mistakes all
read from it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from inkling_core.config.presets import BUILDS
from inkling_core.naming import suggestion

REQUIRED = "???"  # OmegaConf's marker for a value that the user has to give
DTYPES = ("auto", "float32", "bfloat16")
GATE_SECONDS = {"core": 120.0, "long": 1800.0}  # per request


@dataclass(frozen=True)
class GenerateSettings:
    """Settings of `inkling generate`.

    prompt: the user's message; the free text of the command line.
    checkpoint: folder in the published format; null is the embedded nano model.
    dtype: arithmetic of the weights; auto keeps the checkpoint's own.
    max_tokens: most tokens to generate, at least 1.
    effort: thinking effort, none, minimal, low, medium, high, xhigh, max or a number in 0..0.99;
    null leaves it out.
    ignore_stop: go on after a stop token (for timing).
    pack_experts: keep experts that are stored in MXFP8 or NVFP4 as stored and decode them one by
    one when used; less memory, more work per token, the same values.
    """

    prompt: str = REQUIRED
    checkpoint: str | None = None
    dtype: str = "auto"
    max_tokens: int = 256
    effort: str | None = "high"
    ignore_stop: bool = False
    pack_experts: bool = False

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_at_least("max_tokens", self.max_tokens, 1)


@dataclass(frozen=True)
class LogitsSettings:
    """Settings of `inkling logits`.

    checkpoint: folder in the published format; null is the embedded nano model.
    prompts: JSON lines, an object each with `id` (text) and `tokens` (list of token ids).
    out: safetensors file to write: one float32 tensor [T, vocabulary] for each id.
    dtype: arithmetic of the weights; float32 is what other implementations are compared in.
    chunk: positions computed at a time; null is the whole prompt at once.
    """

    prompts: str = REQUIRED
    out: str = REQUIRED
    checkpoint: str | None = None
    dtype: str = "float32"
    chunk: int | None = None

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        if self.chunk is not None:
            check_at_least("chunk", self.chunk, 1)
        check_output("out", self.out)
        if self.out != REQUIRED and Path(self.out).absolute() == Path(self.prompts).absolute():
            raise ValueError(f"out={self.out} would overwrite the prompts: name another file")


@dataclass(frozen=True)
class EvalSettings:
    """Settings of `inkling eval`.

    checkpoint: folder with a nano-like model; null is the embedded nano model.
    tasks: names of the tasks to run; an empty list runs all of them.
    cases: held-out cases of each task.
    seed: seed of the held-out cases.
    dtype: arithmetic of the weights.
    out: JSON file for the table; null prints it only.
    """

    checkpoint: str | None = None
    tasks: tuple[str, ...] = ()
    cases: int = 500
    seed: int = 20261130
    dtype: str = "float32"
    out: str | None = None

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_at_least("cases", self.cases, 1)
        check_words("tasks", self.tasks)
        check_output("out", self.out)


@dataclass(frozen=True)
class GatesSettings:
    """Settings of `inkling gates`.

    url: address of a running server of ours, without /v1.
    model: served name; null asks the server.
    api_key: key of the server, if it has one; better given as the variable INKLING_API_KEY.
    checkpoint: folder of the dense reference for answers and log-probabilities; null is the
    embedded nano model.
    tier: `core` (minutes) or `long` (contexts near the served max_model_len, several at once,
    streams beside them, 200 requests).
    gates: names of the tier's gates to run; an empty list runs all of them.
    out: JSON report to write; null prints it only.
    chunk: tokens per step of the server (its max_num_batched_tokens); facts are placed so that the
    edges of its prefill chunks cut them.
    timeout: seconds that one request may take, then it is told as a hang; null is 120 in the core
    tier, 1800 in the long one.
    """

    url: str = "http://127.0.0.1:8000"
    model: str | None = None
    api_key: str | None = None
    checkpoint: str | None = None
    tier: str = "core"
    gates: tuple[str, ...] = ()
    out: str | None = None
    chunk: int = 512
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url={self.url!r} must start with http:// or https://")
        check_at_least("chunk", self.chunk, 1)
        check_choice("tier", self.tier, tuple(GATE_SECONDS))
        if self.timeout is not None:
            check_at_least("timeout", self.timeout, 1)
        check_words("gates", self.gates)
        check_output("out", self.out)

    def seconds(self) -> float:
        """The timeout, the tier's own where none was given."""
        return GATE_SECONDS[self.tier] if self.timeout is None else self.timeout


@dataclass(frozen=True)
class CheckpointInfoSettings:
    """Settings of `inkling checkpoint info`.

    checkpoint: folder in the published format, a config.json, or a preset (nano, inkling,
    inkling_small).
    tensor_parallel: number of cards that the bytes per card are given for.
    tensors: list each tensor with its shape, dtype and rule.
    build: what the routed experts of a preset or a config.json are stored in, bf16, mxfp8, or
    nvfp4_mxfp8 with MXFP8 in the last sixth of the layers. A folder's files say it themselves.
    format: table, or json for one JSON object.
    """

    checkpoint: str = "nano"
    tensor_parallel: int = 8
    tensors: bool = False
    build: str = "bf16"
    format: str = "table"

    def __post_init__(self) -> None:
        check_at_least("tensor_parallel", self.tensor_parallel, 1)
        check_choice("build", self.build, BUILDS)
        check_choice("format", self.format, ("table", "json"))


@dataclass(frozen=True)
class CheckpointTinySettings:
    """Settings of `inkling checkpoint tiny`.

    out: folder to make; it must not exist yet, or be empty.
    seed: seed of the random weights.
    dtype: dtype of the stored weights, float32 or bfloat16.
    shards: number of safetensors files; above 1 an index is written too.
    tokenizer: write a byte-level tokenizer too, so that the checkpoint can be served.
    build: what the routed experts are stored in, bf16 (which stands for dtype), mxfp8, or
    nvfp4_mxfp8 with MXFP8 in the last sixth of the layers.
    """

    out: str = REQUIRED
    seed: int = 0
    dtype: str = "bfloat16"
    shards: int = 1
    tokenizer: bool = True
    build: str = "bf16"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES[1:])
        check_at_least("shards", self.shards, 1)
        check_choice("build", self.build, BUILDS)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError naming the near choice where `value` is none of `choices`."""
    if value not in choices:
        raise ValueError(
            f"{name}={value!r} must be one of {', '.join(choices)}; {suggestion(value, choices)}"
        )


def check_at_least(name: str, value: float, least: float) -> None:
    """Raises ValueError where `value` is below `least` or is not a number."""
    if not value >= least:  # written so that NaN fails too
        raise ValueError(f"{name}={value} must be at least {least}")


def check_words(name: str, values: tuple[str, ...]) -> None:
    """Raises ValueError where a list holds something else than words."""
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name}={list(values)} must be a flat list of names")


def check_output(name: str, value: str | None) -> None:
    """Raises ValueError where no file can be written, before anything long is computed for it."""
    if value in (None, REQUIRED):
        return
    path = Path(str(value)).absolute()
    if path.is_dir():
        raise ValueError(f"{name}={value} is a folder: name a file in it")
    nearest = next(parent for parent in path.parents if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"{name}={value} cannot be written: {nearest} is not a writable folder")
