"""Answers to the core's parity cases by the Triton ops: on a GPU, or in the interpreter.

Not a comparison (`inkling_core.parity`); found through the entry-point group `inkling.parity`.
"""

import torch

from inkling_core.parity.calls import OpsRunner
from inkling_cuda_ref.backend import CUDA_REF
from inkling_cuda_ref.storage import INTERPRETED


def runner(device: torch.device | None = None) -> OpsRunner:
    """Raises ValueError where the kernels can run nowhere."""
    if device is None and not INTERPRETED:
        raise ValueError(
            "backend=cuda_ref needs device=cuda, or TRITON_INTERPRET=1 in the environment"
        )
    return OpsRunner(CUDA_REF, device)
