"""The names of vllm_gaudi as Python objects: the only file in this package that imports it.

Import it late, in a process that serves (worker, runner, model): vllm_gaudi needs its device
bridge at import. Whatever is named here stands in names.py too; a test compares them.
"""

from __future__ import annotations

# One reason for every ignore below: vllm_gaudi comes with a Gaudi image, never from an index, so
# a type checker cannot see it.
from vllm_gaudi.attention.backends.hpu_attn import (  # type: ignore[import-not-found]
    HPUAttentionImpl,
)
from vllm_gaudi.attention.ops.hpu_paged_attn import (  # type: ignore[import-not-found]
    HPUPagedAttention,
)
from vllm_gaudi.v1.attention.backends.hpu_attn import (  # type: ignore[import-not-found]
    HPUAttentionBackendV1,
)
from vllm_gaudi.v1.worker import hpu_worker  # type: ignore[import-not-found]
from vllm_gaudi.v1.worker.hpu_model_runner import HPUModelRunner  # type: ignore[import-not-found]
from vllm_gaudi.v1.worker.hpu_worker import HPUWorker  # type: ignore[import-not-found]

__all__ = [
    "HPUAttentionBackendV1",
    "HPUAttentionImpl",
    "HPUModelRunner",
    "HPUPagedAttention",
    "HPUWorker",
    "hpu_worker",
]
