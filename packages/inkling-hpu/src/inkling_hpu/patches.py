"""The register of everything that this package changes in code that is not its own.

What it is: a table, printed once per process at start and checked by a test against the code.
What it is not: the changes themselves; `where` names the file that makes each of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

logger = logging.getLogger("vllm.inkling.hpu")  # vLLM shows loggers below its own name only


@dataclass(frozen=True)
class Patch:
    """One change.

    name: how tests and documents call it. target: what is changed, as a dotted name.
    how: wrapped, overridden in a subclass, replaced in a registry. where: our file.
    upstream: where the other side is told of it. until: when it can go.
    """

    name: str
    target: str
    how: str
    where: str
    why: str
    upstream: str
    until: str


_RUNNER = "vllm_gaudi.v1.worker.hpu_model_runner.HPUModelRunner"

PATCHES = (
    Patch(
        "model-class",
        "vllm.ModelRegistry: InklingForCausalLM, InklingForConditionalGeneration",
        "replaced",
        "plugin.py",
        "vLLM's own class runs on CUDA and ROCm only",
        "vllm/models/inkling has no HPU part",
        "vLLM or vllm-gaudi serves the model on HPU",
    ),
    Patch(
        "worker-class",
        "vllm_gaudi.platform.HpuPlatform.check_and_update_config",
        "wrapped",
        "plugin.py",
        "our architectures get our worker while worker_cls is `auto`; refusals come before weights",
        "none: it is a class method without a hook",
        "vllm-gaudi lets a plug-in name a worker per architecture",
    ),
    Patch(
        "runner-class",
        "vllm_gaudi.v1.worker.hpu_worker.HPUModelRunner",
        "replaced while our worker makes its runner",
        "worker.py",
        "the worker names its runner class by a module global",
        "none: it needs a class attribute there",
        "HPUWorker has a hook for its runner class",
    ),
    Patch(
        "page-size",
        f"{_RUNNER}.get_kv_cache_spec",
        "overridden",
        "runner.py",
        "a page is padded by the bytes of its conv row, so that vLLM's block count budgets them",
        "vLLM's own page_size_padded, used as meant",
        "vLLM knows side state per attention block",
    ),
    Patch(
        "conv-rows",
        f"{_RUNNER}.initialize_kv_cache",
        "overridden",
        "runner.py",
        "conv rows are allocated right after the KV cache, again after a wake-up",
        "none",
        "vLLM knows side state per attention block",
    ),
    Patch(
        "sleep",
        "vllm_gaudi.v1.worker.hpu_worker.HPUWorker.sleep",
        "overridden",
        "worker.py",
        "the model holds views of the cache and the conv rows, which keep the memory alive",
        "none",
        "vllm-gaudi tells the model that its cache is gone",
    ),
    Patch(
        "step-tensors",
        f"{_RUNNER}._form_prefill_batch, _create_decode_input_data",
        "overridden",
        "runner.py",
        "conv rows, exact windows and bias positions ride in metadata fields that are None here",
        "none",
        "the metadata has a field for tensors of a model's own",
    ),
    Patch(
        "watched-warm-up",
        f"{_RUNNER}.warmup_model, _prepare_dummy_scenario",
        "overridden",
        "warmup.py",
        "a long warm-up says how far it is, ends where it is stuck, goes on where memory is short",
        "vllm-gaudi's pull request 993 left graphs out for lack of memory; 1078 reverted it",
        "vllm-gaudi does all three",
    ),
    Patch(
        "resumed-prompt-length",
        f"{_RUNNER}._update_states",
        "overridden",
        "upstream_fixes.py",
        "a preempted request that resumes with a prefix hit is sampled at the wrong positions",
        "docs/upstream/resumed-prompt-length.md",
        "its reproduction prints no difference",
    ),
    Patch(
        "prefill-order",
        f"{_RUNNER}._ensure_decodes_first",
        "overridden",
        "upstream_fixes.py",
        "a prefix hit on a block filled in the same step reads it before it is filled",
        "docs/upstream/prefill-order.md",
        "its reproduction prints no difference",
    ),
    Patch(
        "decode-before-hit",
        f"{_RUNNER}._is_prompt",
        "overridden",
        "upstream_fixes.py",
        "as prefill-order, for a block that a decode of the same step fills",
        "docs/upstream/prefill-order.md",
        "its reproduction prints no difference",
    ),
    Patch(
        "paused-decode",
        f"{_RUNNER}._prepare_input_ids",
        "overridden",
        "upstream_fixes.py",
        "asynchronous scheduling: a decode that a step left out goes on from a stale token",
        "docs/upstream/paused-decode.md",
        "its reproduction prints no difference",
    ),
)


def table() -> str:
    """The register as text, one patch per paragraph."""
    return "\n".join(
        f"{p.name}: {p.target} ({p.how}, {p.where})\n"
        f"    why: {p.why}\n    upstream: {p.upstream}\n    until: {p.until}"
        for p in PATCHES
    )


@cache
def announce() -> None:
    """Log the register, once per process."""
    logger.info("inkling-hpu changes %d things that are not its own:\n%s", len(PATCHES), table())
