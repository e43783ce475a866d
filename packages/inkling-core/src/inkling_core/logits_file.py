"""`inkling logits`: token ids in, one float32 logits tensor per prompt out, for comparison
elsewhere.

Not a server and not a benchmark: the dense reference, one prompt at a time.

    prompts  JSON lines: {"id": "a", "tokens": [1, 2, 3]}
    out      safetensors: tensor "a", float32 [T, V], V the unpadded vocabulary
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor

from inkling_core.checkpoint import dtype_of, load_decoder
from inkling_core.cli.settings import LogitsSettings
from inkling_core.config import InklingConfig
from inkling_core.embedded import checkpoint_folder
from inkling_core.generate import TokenGenerator
from inkling_core.model import Decoder


@dataclass(frozen=True)
class Prompt:
    """One line of the prompts file."""

    id: str
    tokens: tuple[int, ...]


def run(settings: LogitsSettings) -> int:
    """Writes `settings.out`. Problems of the prompts file are all reported before any compute."""
    folder = checkpoint_folder(settings.checkpoint)
    config = InklingConfig.from_checkpoint(folder)
    vocabulary = config.unpadded_vocab_size
    prompts = read_prompts(Path(settings.prompts), vocabulary, config.max_position_embeddings)
    decoder = load_decoder(folder, dtype=dtype_of(settings.dtype, config))
    logits = {prompt.id: logits_of(decoder, prompt, settings.chunk) for prompt in prompts}
    _save(logits, Path(settings.out))
    positions = sum(len(prompt.tokens) for prompt in prompts)
    Console().print(f"{settings.out}: {len(prompts)} prompts, {positions} positions x {vocabulary}")
    return 0


def logits_of(decoder: Decoder, prompt: Prompt, chunk: int | None = None) -> Tensor:
    """Float32 logits `[T, V]` of every position; `chunk` positions at a time, or all at once."""
    generator = TokenGenerator(decoder, len(prompt.tokens))
    size = chunk or len(prompt.tokens)
    pieces = [
        generator.feed(prompt.tokens[start : start + size]).float()
        for start in range(0, len(prompt.tokens), size)
    ]
    return torch.cat(pieces)


def read_prompts(path: Path, vocabulary: int, limit: int) -> list[Prompt]:
    """The prompts of a JSON-lines file; `limit`: most tokens that one may have.

    Raises:
        ValueError: every bad line, with its number and what is wrong with it.
    """
    prompts: dict[str, Prompt] = {}
    problems: list[str] = []
    for number, line in _lines(path):
        try:
            prompt = _read_prompt(line, vocabulary)
            if prompt.id in prompts:
                raise ValueError(f"id {prompt.id!r} was used before")
            if len(prompt.tokens) > limit:
                raise ValueError(
                    f"{len(prompt.tokens)} tokens, but the checkpoint's max_position_embeddings "
                    f"is {limit}: shorten the prompt"
                )
            prompts[prompt.id] = prompt
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ValueError(f"{path}:\n  " + "\n  ".join(problems))
    if not prompts:
        raise ValueError(f"{path}: no prompts in it")
    return list(prompts.values())


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:  # bytes that are no UTF-8 are a problem of their line alone
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def _read_prompt(line: bytes, vocabulary: int) -> Prompt:
    row = json.loads(line.decode("utf-8"))
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        raise ValueError('needs an object with "id" (text) and "tokens" (list of token ids)')
    if row["id"] == "__metadata__" or any("\ud800" <= one <= "\udfff" for one in row["id"]):
        raise ValueError(f"id {row['id']!r} cannot name a tensor of a safetensors file")
    tokens = row.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ValueError('"tokens" must be a list of at least one token id')
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocabulary:  # a bool is an int, and no id
            raise ValueError(f"token {token!r} is not an id in 0..{vocabulary - 1}")
    return Prompt(row["id"], tuple(tokens))


def _save(logits: dict[str, Tensor], out: Path) -> None:
    """Writes beside `out` first, so that a file of that name is always whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    save_file({name: tensor.contiguous() for name, tensor in logits.items()}, part)
    os.replace(part, out)
