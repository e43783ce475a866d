"""What this package does not serve, said before weights are read, with the number and the knob.

    Deployment (plain values) x InklingConfig -> list of reasons     (empty: go ahead)

`Deployment.of` takes the values out of vLLM's configuration and the environment; everything else
here needs neither vLLM nor a device. All reasons are listed at once, so that nobody meets them
one restart at a time.

What it is not: the check of a single request. A prompt that is too long is refused by the renderer
(HTTP 400), and vLLM refuses the rest of a request's faults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import ConvLayout
from inkling_core.parallel import TensorParallel
from inkling_core.weights.rules import MAX_TP

BLOCK_SIZES = (16, 128)
"""Kernel block sizes of vllm-gaudi that our block lists were tested with."""

INPUT_REUSE = "PT_HPU_ENABLE_SYNAPSE_INPUT_REUSE"


class RefusedError(ValueError):
    """A deployment that would fail, or answer wrongly, later."""


@dataclass(frozen=True)
class Deployment:
    """What was asked for, in plain values.

    num_blocks: the pool's blocks, the null block included; None while it is not known.
    float32_allowed: the emulation lifts vllm-gaudi's forced bfloat16, to compare tokens exactly.
    """

    dtype: torch.dtype
    block_size: int
    max_model_len: int
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    expert_parallel: bool = False
    num_blocks: int | None = None
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    speculative: str | None = None
    kv_transfer: str | None = None
    lora: bool = False
    contiguous_pa: bool = False
    input_reuse: bool = False
    float32_allowed: bool = False

    @classmethod
    def of(
        cls, vllm_config: Any, environ: Mapping[str, str] = os.environ, **more: Any
    ) -> Deployment:
        """The values of a `VllmConfig`; `more` overrides them."""
        model, cache = vllm_config.model_config, vllm_config.cache_config
        parallel, spec = vllm_config.parallel_config, vllm_config.speculative_config
        transfer = vllm_config.kv_transfer_config
        values = {
            "dtype": model.dtype,
            "block_size": cache.block_size if cache.user_specified_block_size else 128,
            "max_model_len": model.max_model_len,
            "tp_size": parallel.tensor_parallel_size,
            "pp_size": parallel.pipeline_parallel_size,
            "dp_size": parallel.data_parallel_size,
            "expert_parallel": bool(parallel.enable_expert_parallel),
            "num_blocks": cache.num_gpu_blocks_override,
            "kv_cache_dtype": cache.cache_dtype,
            "quantization": model.quantization,
            "speculative": None if spec is None else str(spec.method),
            "kv_transfer": None if transfer is None else transfer.kv_connector,
            "lora": vllm_config.lora_config is not None,
        }
        return cls.of_values(environ, **{**values, **more})

    @classmethod
    def of_values(cls, environ: Mapping[str, str], **values: Any) -> Deployment:
        """Plain values, and those that only the environment says; `values` win."""
        variables = {
            "contiguous_pa": _is_on(environ, "VLLM_CONTIGUOUS_PA"),
            "input_reuse": _is_on(environ, INPUT_REUSE),
        }
        named = _quantization(values.pop("quantization", None), environ)
        return cls(**{**variables, "quantization": named, **values})


def refuse(config: InklingConfig, deployment: Deployment) -> None:
    """Raises RefusedError listing every reason why `deployment` cannot be served."""
    found = reasons(config, deployment)
    if found:
        raise RefusedError(
            f"inkling-hpu does not serve this deployment, for {len(found)} reason(s):\n  - "
            + "\n  - ".join(found)
        )


def reasons(config: InklingConfig, deployment: Deployment) -> list[str]:
    """Every reason against it; each names the value, the limit and the knob."""
    return [line for check in CHECKS.values() for line in check(config, deployment)]


def usable_sizes(config: InklingConfig, deployment: Deployment) -> list[int]:
    """Tensor-parallel sizes of one node at which nothing is said against the split."""
    sizes = range(1, MAX_TP + 1)
    return [n for n in sizes if not list(_parallel(config, replace(deployment, tp_size=n)))]


def pool_reason(num_blocks: int, block_size: int, max_model_len: int) -> str | None:
    """Why a pool cannot hold one request of the longest length; None where it can.

    vLLM's own check forgets that block 0 is the null block, which no request ever gets: a pool of
    exactly the request's blocks passes it, and the request then waits for ever.
    """
    needed = -(-max_model_len // block_size) + 1
    if num_blocks >= needed:
        return None
    return (
        f"the KV pool has {num_blocks} blocks of {block_size} tokens, one of them the null block; "
        f"a request of max_model_len={max_model_len} tokens needs {needed}: raise "
        "--gpu-memory-utilization or --num-gpu-blocks-override, or lower --max-model-len to "
        f"{max(0, num_blocks - 1) * block_size}"
    )


def _dtypes(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.dtype not in (torch.bfloat16, *([torch.float32] if d.float32_allowed else [])):
        yield f"dtype {d.dtype}: Gaudi 2 serves it in bfloat16 only; start with --dtype bfloat16"
    if d.kv_cache_dtype not in ("auto", "bfloat16"):
        yield (
            f"KV cache dtype {d.kv_cache_dtype}: keys and values are kept in the model's dtype; "
            "start with --kv-cache-dtype auto"
        )


def _block_size(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.block_size not in BLOCK_SIZES:
        yield (
            f"block size {d.block_size}: must be one of {', '.join(map(str, BLOCK_SIZES))}; "
            "leave --block-size away (128)"
        )


def _context(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.max_model_len > config.max_position_embeddings:
        yield (
            f"max_model_len {d.max_model_len}: the checkpoint ends at "
            f"{config.max_position_embeddings} positions; lower --max-model-len"
        )


def _parallel(config: InklingConfig, d: Deployment) -> Iterator[str]:
    for name, size in (("pipeline", d.pp_size), ("data", d.dp_size)):
        if size != 1:
            yield f"{name}-parallel size {size}: only tensor parallelism is served; set it to 1"
    if d.expert_parallel:
        yield "expert parallelism: every rank holds a slice of every expert; leave it off"
    yield from _undivided(config, d.tp_size)
    kv_heads = {TensorParallel(0, d.tp_size).kv_heads(n) for n in _kv_head_counts(config, d)}
    if len(kv_heads) > 1:
        yield (
            f"{' and '.join(map(str, sorted(kv_heads)))} KV heads per rank on local and global "
            f"layers at tensor-parallel size {d.tp_size}: vllm-gaudi keeps one page shape; choose "
            "a size at which they agree"
        )


def _undivided(config: InklingConfig, tp_size: int) -> Iterator[str]:
    counts = {
        "attention heads": config.num_attention_heads,
        "vocabulary rows": config.vocab_size,
        "columns of a dense layer": config.intermediate_size,
        "columns of an expert": config.moe_intermediate_size,
    }
    for what, count in counts.items():
        if count % tp_size:
            yield (
                f"tensor-parallel size {tp_size} does not divide the {count} {what}: choose "
                "another --tensor-parallel-size"
            )
    try:
        ConvLayout.from_config(config, tp_size)
    except ValueError as error:
        yield f"{error}: choose another --tensor-parallel-size"


def _kv_head_counts(config: InklingConfig, d: Deployment) -> set[int]:
    """Of both kinds of layer; none where they do not divide, which _undivided has said."""
    counts = {config.kv_heads(layer) for layer in range(config.num_hidden_layers)}
    return {n for n in counts if n % d.tp_size == 0 or d.tp_size % n == 0}


def _features(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.quantization:
        yield (
            f"quantisation {d.quantization}: only the published bfloat16 checkpoint is served; "
            "leave --quantization and QUANT_CONFIG away"
        )
    if d.speculative:
        yield (
            f"speculative decoding ({d.speculative}): conv rows cannot be rolled back when a draft "
            "token is rejected; leave --speculative-config away"
        )
    if d.kv_transfer:
        yield (
            f"KV transfer ({d.kv_transfer}): a connector moves keys and values but not conv rows; "
            "leave --kv-transfer-config and --kv-offloading-size away"
        )
    if d.lora:
        yield "LoRA adapters: the decoder's projections do not apply them; leave --enable-lora away"


def _environment(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.contiguous_pa:
        yield (
            "VLLM_CONTIGUOUS_PA=true: its defragmenter moves blocks and leaves their conv rows "
            "behind, and it switches prefix caching off; unset it"
        )
    if d.input_reuse:
        yield (
            f"{INPUT_REUSE}=1: conv rows are written inside the graph, and upstream saw reuse of "
            "graph inputs corrupt such state (vllm-gaudi #1753); unset it or set it to 0"
        )


def _pool(config: InklingConfig, d: Deployment) -> Iterator[str]:
    if d.num_blocks is not None:
        reason = pool_reason(d.num_blocks, d.block_size, d.max_model_len)
        if reason:
            yield reason


def _quantization(named: str | None, environ: Mapping[str, str]) -> str | None:
    return named or ("INC, by QUANT_CONFIG" if environ.get("QUANT_CONFIG") else None)


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() in ("1", "true", "yes", "y", "on", "t")


CHECKS: Mapping[str, Callable[[InklingConfig, Deployment], Iterator[str]]] = {
    "dtype": _dtypes,
    "block_size": _block_size,
    "max_model_len": _context,
    "tensor_parallel": _parallel,
    "features": _features,
    "environment": _environment,
    "pool": _pool,
}
"""What a reason is about -> the reasons."""
