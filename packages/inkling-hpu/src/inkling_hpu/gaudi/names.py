"""Each name of vllm_gaudi that this package relies on, with the parameters it relies on.

The table is checked at start (`refuse_drift`), so that a new vllm_gaudi ends in a list of what
changed and not in a wrong answer or a traceback in the middle of a step.

    a version that was never run here   a warning
    a missing or changed name           a refusal that lists every one of them

What it is not: the comparison (check.py). A name that imports.py imports has to stand here; a
test compares the two.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from functools import cache
from pathlib import Path

from inkling_hpu.gaudi.check import SourceTree, Use, problems

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only

RUN_VERSIONS = ("0.26.0",)
"""Versions whose real worker and runner served Inkling in this repository's tests."""

CARRIERS = (
    "load_indices_tensor",
    "store_indices_tensor",
    "seqlens_offsets_for_blocks",
    "blocks_caching_range",
    "window_block_list",
    "window_block_groups",
)
"""Metadata fields that a plain decoder leaves None and that survive trimming: ours ride there (see
`inkling_hpu.carriers`)."""

_METADATA = (
    "is_prompt",
    "attn_bias",
    "seq_lens_tensor",
    "context_lens_tensor",
    "block_list",
    "block_mapping",
    "block_usage",
    "block_groups",
    "slot_mapping",
    "block_size",
)
_RUNNER = "v1.worker.hpu_model_runner"
_WORKER = "v1.worker.hpu_worker"
_BATCH = "v1.worker.hpu_input_batch"

USES = (
    Use(
        "platform",
        "HpuPlatform.check_and_update_config",
        "override",
        ("vllm_config",),
        "the plugin chooses its worker there",
    ),
    Use(_WORKER, "HPUWorker", "name", why="base of our worker"),
    Use(_WORKER, "HPUModelRunner", "name", why="our runner takes its place while it is made"),
    Use(_WORKER, "HPUWorker.init_device", "override", (), "makes the runner"),
    Use(
        _WORKER,
        "HPUWorker.load_model",
        "override",
        ("vllm_config", "quant_config_path"),
        "may make a runner anew",
    ),
    Use(_WORKER, "HPUWorker.compile_or_warm_up_model", "override", (), "warms up; we time it"),
    Use(_WORKER, "HPUWorker.sleep", "override", ("level",), "drops the caches"),
    Use(
        _WORKER,
        "HPUWorker",
        "attributes",
        ("vllm_config", "model_runner", "kv_cache_sleeping"),
        "state that our worker reads",
    ),
    Use(_RUNNER, "HPUModelRunner", "name", why="base of our runner"),
    Use(_RUNNER, "HPUModelRunner.get_kv_cache_spec", "override", (), "pads the page"),
    Use(
        _RUNNER,
        "HPUModelRunner.initialize_kv_cache",
        "override",
        ("kv_cache_config",),
        "allocates conv rows",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._form_prefill_batch",
        "override",
        ("contents",),
        "adds the tensors of a prefill step",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._create_decode_input_data",
        "override",
        (
            "num_decodes",
            "num_scheduled_tokens",
            "context_lens",
            "block_table_cpu_tensor",
            "scheduler_output",
        ),
        "adds the tensors of a decode step",
    ),
    Use(
        "extension.bucketing.common",
        "HPUBucketingManager",
        "attributes",
        ("prompt_buckets", "decode_buckets"),
        "patch watched-warm-up",
    ),
    Use(_RUNNER, "HPUModelRunner.warmup_model", "override", (), "patch watched-warm-up"),
    Use(
        _RUNNER,
        "HPUModelRunner._prepare_dummy_scenario",
        "override",
        ("prompt_cfg", "decode_cfg"),
        "patch watched-warm-up",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner.execute_model",
        "call",
        ("scheduler_output", "warmup_mode"),
        "patch watched-warm-up",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._update_states",
        "override",
        ("scheduler_output",),
        "patch resumed-prompt-length",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._ensure_decodes_first",
        "override",
        ("scheduler_output",),
        "patch prefill-order",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._is_prompt",
        "call",
        ("req_idx", "scheduler_output"),
        "patch prefill-order",
    ),
    Use(
        _RUNNER,
        "HPUModelRunner._prepare_input_ids",
        "override",
        ("scheduler_output", "return_index"),
        "patch paused-decode",
    ),
    Use(_RUNNER, "HPUModelRunner._resolve_block", "call", ("block_id",), "block ids of a step"),
    Use(
        _RUNNER,
        "HPUModelRunner",
        "attributes",
        (
            "_PAD_BLOCK_ID",
            "attn_block_size",
            "input_batch",
            "requests",
            "device",
            "vllm_config",
            "max_model_len",
            "bucketing_manager",
            "graphed_buckets",
            "input_ids_cpu",
            "input_ids_hpu",
        ),
        "state that our runner reads",
    ),
    Use(
        _RUNNER,
        "BatchContents",
        "fields",
        ("req_ids", "token_ids", "context_lens", "blocks"),
        "what a prefill batch is made of",
    ),
    Use(_RUNNER, "PrefillInputData", "fields", ("token_ids", "attn_metadata"), "a prefill batch"),
    Use(_RUNNER, "DecodeInputData", "fields", ("token_ids", "attn_metadata"), "a decode batch"),
    Use(
        _RUNNER,
        "trim_attn_metadata",
        "strings",
        (*_METADATA, *CARRIERS),
        "the metadata that reaches the model",
    ),
    Use(
        _BATCH,
        "InputBatch",
        "attributes",
        (
            "num_prompt_tokens",
            "num_computed_tokens_cpu",
            "req_id_to_index",
            "req_ids",
            "num_reqs",
            "prev_req_id_to_index",
        ),
        "the rows of a step",
    ),
    Use(_BATCH, "InputBatch.swap_states", "call", ("i1", "i2"), "patch prefill-order"),
    Use(
        "v1.attention.backends.hpu_attn",
        "HPUAttentionBackendV1.get_impl_cls",
        "override",
        (),
        "our attention back end names our implementation",
    ),
    Use(
        "attention.backends.hpu_attn",
        "HPUAttentionImpl",
        "name",
        why="base of our attention implementation",
    ),
    Use(
        "attention.backends.hpu_attn",
        "HPUAttentionImpl.common_attention_args",
        "call",
        ("block_list", "key_cache", "value_cache", "block_size"),
        "arguments of paged attention",
    ),
    Use(
        "attention.ops.hpu_paged_attn",
        "HPUPagedAttention.forward_decode",
        "call",
        (
            "query",
            "block_mapping",
            "block_bias",
            "block_groups",
            "position_bias",
        ),
        "paged attention",
    ),
    Use(
        "extension.ops",
        "flat_pa",
        "call",
        (
            *("query", "key_cache", "value_cache", "block_list", "block_mapping", "block_bias"),
            *("block_groups", "block_size", "scale", "matmul_qk_op", "position_bias"),
            *("matmul_av_op", "batch2block_matmul_op", "block2batch_matmul_op"),
            *("keys_fetch_func", "values_fetch_func", "sinks", "k_scales", "v_scales"),
        ),
        "paged attention with a bias per block",
    ),
    Use("extension.runtime", "get_config", "call", (), "which softmax the kernel uses"),
    Use("extension.kernels", "rms_norm", "call", (), "kernel of the norm"),
    Use("extension.kernels", "fsdpa", "call", (), "kernel of prefill attention"),
)


class DriftError(RuntimeError):
    """The installed vllm_gaudi is not the one that this package was written against."""


@cache
def folder() -> Path | None:
    """Where vllm_gaudi lies, without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("vllm_gaudi")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def installed_version() -> str:
    """The distribution's version, or "unknown" (a source tree on the path has none)."""
    for name in ("vllm-gaudi", "vllm_gaudi"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


@cache
def refuse_drift() -> None:
    """Check the installed vllm_gaudi against the table, once per process.

    Raises DriftError listing every missing or changed name. A version outside RUN_VERSIONS is
    only warned about.
    """
    where = folder()
    if where is None:
        raise DriftError(
            "inkling-hpu needs vllm_gaudi, which is not importable: start from a Gaudi image, or "
            "put a vllm-gaudi source tree on the path (docs/backends/hpu.md)"
        )
    version = installed_version()
    found = problems(USES, SourceTree(where))
    if found:
        listed = "\n  ".join(found)
        raise DriftError(
            f"vllm_gaudi {version} at {where} differs from what inkling-hpu was written against "
            f"({', '.join(RUN_VERSIONS)}) in {len(found)} places:\n  {listed}\n"
            "Install one of those versions, or adapt inkling_hpu.gaudi to this one"
        )
    if not version.startswith(RUN_VERSIONS):
        logger.warning(
            "vllm_gaudi %s was never run with inkling-hpu (run: %s). Every name that it uses is "
            "there, with the same parameters; its behaviour is unknown",
            version,
            ", ".join(RUN_VERSIONS),
        )
