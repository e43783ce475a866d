"""The names of vllm_gaudi as Python objects: the only file that imports its classes.

Import it late, in a process that serves (worker, runner, model): vllm_gaudi needs its device
bridge at import. Whatever is named here stands in names.py too; a test compares them.
"""

from __future__ import annotations

from typing import Any

# One reason for every ignore below: vllm_gaudi comes with a Gaudi image, never from an index, so
# a type checker cannot see it. Hence the names are of type Any.
from vllm_gaudi.attention.backends.hpu_attn import (  # type: ignore[import-not-found]
    HPUAttentionImpl as _HPUAttentionImpl,
)
from vllm_gaudi.attention.ops.hpu_paged_attn import (  # type: ignore[import-not-found]
    HPUPagedAttention as _HPUPagedAttention,
)
from vllm_gaudi.v1.attention.backends.hpu_attn import (  # type: ignore[import-not-found]
    HPUAttentionBackendV1 as _HPUAttentionBackendV1,
)
from vllm_gaudi.v1.worker import hpu_worker as _hpu_worker  # type: ignore[import-not-found]
from vllm_gaudi.v1.worker.hpu_model_runner import (  # type: ignore[import-not-found]
    HPUModelRunner as _HPUModelRunner,
)
from vllm_gaudi.v1.worker.hpu_worker import (  # type: ignore[import-not-found]
    HPUWorker as _HPUWorker,
)

HPUAttentionBackendV1: Any = _HPUAttentionBackendV1
HPUAttentionImpl: Any = _HPUAttentionImpl
HPUModelRunner: Any = _HPUModelRunner
HPUPagedAttention: Any = _HPUPagedAttention
HPUWorker: Any = _HPUWorker
hpu_worker: Any = _hpu_worker
