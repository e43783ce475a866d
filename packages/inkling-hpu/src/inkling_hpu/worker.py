"""vllm-gaudi's worker with our runner in it.

What it is: the worker class that the plugin names for our architectures. vllm-gaudi's worker looks
its runner class up as a module global whenever it makes one; ours stands there for that moment
only, and only for our architectures, so that a worker switched to another model gets the
original.

What it is not: device set-up, memory sizing, sleep and wake-up, all of them vllm-gaudi's. Sleep
drops the KV cache, and conv rows with it; a wake-up allocates both through the runner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inkling_core.serving.metrics import set_gauge
from inkling_hpu.gaudi.imports import HPUWorker, hpu_worker
from inkling_hpu.plugin import serves_inkling
from inkling_hpu.runner import InklingRunner


class InklingWorker(HPUWorker):
    """See the module docstring."""

    def init_device(self) -> None:
        """As vllm-gaudi's, with our runner."""
        with _our_runner(self.vllm_config):
            super().init_device()

    def load_model(self, vllm_config: Any = None, *arguments: Any, **options: Any) -> None:
        """As vllm-gaudi's; where it makes a runner anew, it is ours for our architectures."""
        with _our_runner(vllm_config or self.vllm_config):
            super().load_model(vllm_config, *arguments, **options)

    def compile_or_warm_up_model(self) -> Any:
        """As vllm-gaudi's; for our runner, how long it took and what it ran go to /metrics."""
        began = time.monotonic()
        answer = super().compile_or_warm_up_model()
        if isinstance(self.model_runner, InklingRunner):
            set_gauge("inkling:warmup_seconds", time.monotonic() - began)
            # absent where bucketing is switched off
            set_gauge(
                "inkling:warmup_graphs", len(getattr(self.model_runner, "graphed_buckets", ()))
            )
        return answer

    def sleep(self, level: int = 1) -> None:
        """As vllm-gaudi's, then the model lets go of pages and conv rows, or no memory is freed."""
        super().sleep(level)
        if self.kv_cache_sleeping and isinstance(self.model_runner, InklingRunner):
            self.model_runner.get_model().release_caches()


@contextmanager
def _our_runner(vllm_config: Any) -> Iterator[None]:
    original = hpu_worker.HPUModelRunner
    if serves_inkling(vllm_config):
        hpu_worker.HPUModelRunner = InklingRunner
    try:
        yield
    finally:
        hpu_worker.HPUModelRunner = original
