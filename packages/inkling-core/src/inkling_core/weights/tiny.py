"""Random checkpoints in the published format, small by default: for tests, servers and benchmarks.

Not trained and not initial weights for training: every side weight (norms, biases, scales, convs)
is random and far from neutral, so that code which forgets one of them computes something else.
Needs torch and safetensors only.

Scales are chosen so that every part matters and logits have a standard deviation near 1:

    matrices      normal, 1 / sqrt(fan in)
    q_norm k_norm around head_dim ** 0.25, so that attention scores q.k / head_dim are of order 1
    unembed       mup / sqrt(D), since logits = unembed (norm(x) / mup)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.filesize import decimal
from safetensors.torch import save_file
from torch import Tensor

from inkling_core.config import AudioConfig, InklingConfig, MtpConfig, VisionConfig
from inkling_core.config.presets import BUILDS
from inkling_core.weights.byte_tokenizer import END_IDS, write_byte_tokenizer
from inkling_core.weights.expert_formats import as_built, stored_bytes
from inkling_core.weights.expert_writer import stored_tensors
from inkling_core.weights.manifest import INDEX, SINGLE
from inkling_core.weights.names import TensorSpec, all_tensors

if TYPE_CHECKING:
    from inkling_core.cli.settings import CheckpointTinySettings

TINY = InklingConfig(
    vocab_size=320,
    unpadded_vocab_size=300,
    hidden_size=64,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    swa_num_key_value_heads=2,
    head_dim=16,
    d_rel=8,
    sliding_window=16,
    rel_extent=32,
    local_layer_ids=(0, 1, 3, 4),
    intermediate_size=96,
    moe_intermediate_size=32,
    n_routed_experts=8,
    num_experts_per_tok=3,
    n_shared_experts=2,
    route_scale=8.0,
    logits_mup_width_multiplier=4.0,
    max_position_embeddings=4096,
    stop_token_ids=END_IDS,
    dense_layer_count=1,
    log_scaling_n_floor=24,
    log_scaling_alpha=0.1,
    mtp=MtpConfig(num_layers=2, local_layer_ids=(0,)),
    vision=VisionConfig(num_layers=2, patch_size=4, temporal_patch_size=2, num_channels=3),
    audio=AudioConfig(n_mel_bins=8, mel_vocab_size=4),
)
"""Window, extent and log-scaling floor are crossed by a prompt of 40 tokens; rows 300..319 pad."""


def make_tiny(
    directory: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    shards: int = 1,
    tokenizer: bool = False,
    build: str = "bf16",
) -> InklingConfig:
    """Writes a random checkpoint into `directory` and returns its configuration.

    Args:
        directory: made if needed; a folder that holds anything is refused.
        overrides: fields of `InklingConfig` that differ from `TINY`.
        seed: of the weights; equal seeds give equal files.
        dtype: float32 or bfloat16, of the stored weights (selection bias and router scale are
            float32 either way).
        shards: number of files; above 1 an index is written.
        tokenizer: also write `tokenizer.json`, one token a byte and the special tokens.
        build: what the routed experts are stored in, one of `config.presets.BUILDS`; "bf16" stands
            for `dtype`.

    Raises:
        ConfigError: overrides that no model can have.
        ValueError: a folder in use, a dtype, build or shard count that cannot be written.
    """
    names = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
    if dtype not in names:
        raise ValueError(f"dtype = {dtype}: a checkpoint is stored in float32 or bfloat16")
    config = TINY.replace(**{"dtype": names[dtype], **(overrides or {})})
    if build not in BUILDS:
        raise ValueError(f"build = {build!r}: must be one of {', '.join(BUILDS)}")
    layers = config.num_hidden_layers
    specs = [as_built(spec, build, layers) for spec in all_tensors(config)]
    if not 1 <= shards <= len(specs):
        raise ValueError(f"shards = {shards}: must be 1..{len(specs)}, the number of tensors")
    folder = _empty_folder(Path(directory))
    _write_json(folder / "config.json", config.to_dict())
    _write_json(folder / "generation_config.json", {"eos_token_id": list(config.stop_token_ids)})
    if tokenizer:
        write_byte_tokenizer(folder, config.unpadded_vocab_size)
    _write_weights(folder, config, specs, seed, shards)
    return config


def random_tensors(config: InklingConfig, seed: int) -> Iterator[tuple[TensorSpec, Tensor]]:
    """Every tensor of a release with random values in its stored dtype, one at a time."""
    generator = torch.Generator().manual_seed(seed)
    for spec in all_tensors(config):
        value = _random(spec, config, generator)
        yield spec, value.to(torch.float32 if spec.dtype == "F32" else torch.bfloat16)


def _random(spec: TensorSpec, config: InklingConfig, generator: torch.Generator) -> Tensor:
    normal = torch.randn(spec.shape, generator=generator)
    name = spec.name
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return config.head_dim**0.25 * (1 + 0.2 * normal)
    if "norm" in name or name.endswith("global_scale"):
        return 1 + 0.2 * normal
    if name.endswith("gate.bias"):
        return 0.1 * normal  # comparable to the spread of the sigmoids that it is added to
    if name.endswith("sconv.weight"):
        return 0.3 * normal
    if name == "model.llm.unembed.weight":
        return normal * config.logits_mup_width_multiplier / sqrt(config.hidden_size)
    if name == "model.llm.embed.weight":
        return normal
    if name.endswith("rel_logits_proj.proj"):
        return normal / sqrt(config.d_rel)
    return normal / sqrt(spec.shape[-1])


def _empty_folder(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder: name a new one")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_weights(
    folder: Path, config: InklingConfig, specs: list[TensorSpec], seed: int, shards: int
) -> None:
    """Files of about equal size; one file's tensors are in memory at a time."""
    total = sum(stored_bytes(spec) for spec in specs)
    limit = total / shards
    files: list[str] = []
    weight_map: dict[str, str] = {}
    pending: dict[str, Tensor] = {}
    filled, left = 0, len(specs)
    num_bytes = 0
    for spec, (_, tensor) in zip(specs, random_tensors(config, seed), strict=True):
        parts = stored_tensors(spec, tensor)
        pending |= parts
        filled += stored_bytes(spec)
        left -= 1
        num_bytes += sum(part.nbytes for part in parts.values())
        # close a file when its share is full, or when the files to come need a tensor each
        to_come = shards - len(files) - 1
        if left == 0 or (to_come and (filled >= limit * (len(files) + 1) or left == to_come)):
            name = (
                SINGLE if shards == 1 else f"model-{len(files) + 1:05d}-of-{shards:05d}.safetensors"
            )
            save_file(pending, folder / name, metadata={"format": "pt"})
            (folder / name).chmod(0o644)  # safetensors leaves 0600, which another user cannot serve
            weight_map |= dict.fromkeys(pending, name)
            files.append(name)
            pending = {}
    if shards > 1:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": weight_map}
        _write_json(folder / INDEX, index)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def run(settings: CheckpointTinySettings) -> int:
    """`inkling checkpoint tiny`: writes the folder and says what is in it."""
    config = make_tiny(
        settings.out,
        seed=settings.seed,
        dtype=getattr(torch, settings.dtype),
        shards=settings.shards,
        tokenizer=settings.tokenizer,
        build=settings.build,
    )
    parameters = sum(prod(spec.shape) for spec in all_tensors(config))
    size = sum(file.stat().st_size for file in Path(settings.out).iterdir())
    Console().print(f"{settings.out}: {parameters:,} random parameters, {decimal(size)}")
    return 0
